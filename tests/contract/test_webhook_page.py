"""The server of docs/webhook.md as it stands there, asked by the leader's own scaler, with real processes."""

from __future__ import annotations

import asyncio
import http.client
import socket
import sys
import time
from pathlib import Path

from integration.harness import eventually
from loadtrim_agent.leader.scaling.port import Answer, ScaleRequest
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
from pages.scaler import TOKEN, serving

WAIT_SECONDS = 30.0
INSTANCE = """
import os, pathlib, signal, sys
own = pathlib.Path(sys.argv[1], os.environ["LOADTRIM_INSTANCE"])
def ended(*_):
    with own.open("a") as file:
        file.write("told to end\\n")
signal.signal(signal.SIGTERM, ended)
own.write_text(os.environ["LOADTRIM_SCALER_URL"] + "\\n")
while "told to end" not in own.read_text() or pathlib.Path(sys.argv[1], "stay").exists():
    signal.sigtimedwait([], 0.05)
own.rename(own.with_suffix(".gone"))
"""
"""Writes down what it is told; with a file ``stay`` beside it, it takes its time to end."""


def service(directory: Path) -> list[str]:
    """Return the command of an instance that writes into a directory."""
    return [sys.executable, "-c", INSTANCE, str(directory)]


def instances(directory: Path) -> dict[int, str]:
    """Return the names of the instances that have not ended, by their numbers."""
    names = [path.name for path in directory.glob("replica-*") if path.suffix != ".gone"]
    return {int(name.rpartition("-")[2]): name for name in names}


def die(directory: Path, name: str) -> None:
    """Let an instance end by itself."""
    with (directory / name).open("a") as file:
        file.write("told to end\n")


async def ask(scaler: WebhookScaler, replicas: int, *victims: str) -> Answer:
    request = ScaleRequest(
        group="payments-service", replicas=replicas, victims=victims, generation=1, sequence=1, reason="a test"
    )
    return (await scaler.request(request)).answer


async def test_the_server_of_the_page_does_what_a_leader_asks(tmp_path: Path) -> None:
    began = int(time.time())
    async with serving(tmp_path, *service(tmp_path)) as port:
        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        await eventually(lambda: list(instances(tmp_path)) == [1], "one runs before anybody asks")
        for _ in range(2):  # the wanted state, so that the same request again changes nothing
            assert await ask(scaler, 3) is Answer.ACCEPTED
        await eventually(lambda: len(instances(tmp_path)) == 3, "three run")
        assert set(instances(tmp_path)) == {1, 2, 3}
        victim = instances(tmp_path)[2]
        assert began <= int(victim.split("-")[1]) <= time.time(), "no server that ran before gave such a name"
        line = f"{scaler.url}\n"  # an instance writes it when it has begun
        await eventually(lambda: (tmp_path / victim).read_text() == line, "it knows whom to ask")

        (tmp_path / "stay").touch()
        for _ in range(3):  # a request comes again while the victim is still there
            assert await ask(scaler, 2, victim) is Answer.ACCEPTED
        await eventually(lambda: "told" in (tmp_path / victim).read_text(), "the victim is told")
        assert await ask(scaler, 3) is Answer.ACCEPTED
        await eventually(lambda: 4 in instances(tmp_path), "a new one runs, by a name of its own")
        (tmp_path / "stay").unlink()
        await eventually(lambda: (tmp_path / f"{victim}.gone").exists(), "the victim is gone")
        assert (tmp_path / f"{victim}.gone").read_text().count("told to end") == 1
        assert set(instances(tmp_path)) == {1, 3, 4}
        await scaler.close()


async def test_the_server_of_the_page_replaces_what_has_died(tmp_path: Path) -> None:
    async with serving(tmp_path, *service(tmp_path)) as port:
        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        assert await ask(scaler, 2) is Answer.ACCEPTED
        # What is added to it before an instance has written its own line is written over.
        await eventually(lambda: len(instances(tmp_path)) == 2, "two run")
        dying = instances(tmp_path)[1]
        await eventually(lambda: (tmp_path / dying).read_text(), "it has begun")
        die(tmp_path, dying)
        await eventually(lambda: (tmp_path / f"{dying}.gone").exists(), "it has died")

        async def replaced() -> None:
            while 3 not in instances(tmp_path):
                await ask(scaler, 2)  # a leader asks again, whatever it was answered

        await asyncio.wait_for(replaced(), WAIT_SECONDS)
        await scaler.close()


async def test_the_server_of_the_page_keeps_one_running_where_nobody_asks(tmp_path: Path) -> None:
    """The only one died, and nothing was started ever again: the server looked in a request only."""
    async with serving(tmp_path, *service(tmp_path)):
        for number in (1, 2):
            await eventually(lambda n=number: list(instances(tmp_path)) == [n], "one runs")
            dying = instances(tmp_path)[number]
            await eventually(lambda path=tmp_path / dying: path.read_text(), "it has begun")
            die(tmp_path, dying)
        await eventually(lambda: list(instances(tmp_path)) == [3], "one runs again")


async def test_a_caller_that_says_nothing_does_not_stop_the_server_of_the_page(tmp_path: Path) -> None:
    """One silent connection held up every request."""
    async with serving(tmp_path, *service(tmp_path)) as port:
        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        with socket.create_connection(("127.0.0.1", port)):
            assert await ask(scaler, 2) is Answer.ACCEPTED
        await scaler.close()


async def test_the_server_of_the_page_takes_its_own_token_only(tmp_path: Path) -> None:
    async with serving(tmp_path, *service(tmp_path)) as port:
        await eventually(lambda: list(instances(tmp_path)) == [1], "one runs")
        first = instances(tmp_path)[1]
        for token in (None, "other", "s3cret-t0ke"):
            stranger = WebhookScaler(f"http://127.0.0.1:{port}/scale", token)
            assert await ask(stranger, 1, first) is Answer.REFUSED
            await stranger.close()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        connection.request("GET", "/scale")
        assert connection.getresponse().status == 501
        connection.close()

        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        for replicas in (2, 3):
            assert await ask(scaler, replicas) is Answer.ACCEPTED
            await eventually(lambda n=replicas: n in instances(tmp_path), "one more")
        assert "told" not in (tmp_path / first).read_text(), "a stranger named it"
        await scaler.close()

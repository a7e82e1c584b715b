"""The server of docs/webhook.md as it stands there, asked by the leader's own scaler, with real processes."""

from __future__ import annotations

import asyncio
import http.client
import sys
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


def instances(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("replica-*") if path.suffix != ".gone"}


async def ask(scaler: WebhookScaler, replicas: int, *victims: str) -> Answer:
    request = ScaleRequest(
        group="payments-service", replicas=replicas, victims=victims, generation=1, sequence=1, reason="a test"
    )
    return (await scaler.request(request)).answer


async def test_the_server_of_the_page_does_what_a_leader_asks(tmp_path: Path) -> None:
    async with serving(tmp_path, *service(tmp_path)) as port:
        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        await eventually(lambda: instances(tmp_path) == {"replica-1"}, "one runs before anybody asks")
        for _ in range(2):  # the wanted state, so that the same request again changes nothing
            assert await ask(scaler, 3) is Answer.ACCEPTED
        await eventually(lambda: len(instances(tmp_path)) == 3, "three run")
        assert instances(tmp_path) == {"replica-1", "replica-2", "replica-3"}
        line = f"{scaler.url}\n"  # an instance writes it when it has begun
        await eventually(lambda: (tmp_path / "replica-2").read_text() == line, "it knows whom to ask")

        (tmp_path / "stay").touch()
        for _ in range(3):  # a request comes again while the victim is still there
            assert await ask(scaler, 2, "replica-2") is Answer.ACCEPTED
        await eventually(lambda: "told" in (tmp_path / "replica-2").read_text(), "the victim is told")
        assert await ask(scaler, 3) is Answer.ACCEPTED
        await eventually(lambda: "replica-4" in instances(tmp_path), "a new one runs, by a name of its own")
        (tmp_path / "stay").unlink()
        await eventually(lambda: (tmp_path / "replica-2.gone").exists(), "the victim is gone")
        assert (tmp_path / "replica-2.gone").read_text().count("told to end") == 1
        assert instances(tmp_path) == {"replica-1", "replica-3", "replica-4"}
        await scaler.close()


async def test_the_server_of_the_page_replaces_what_has_died(tmp_path: Path) -> None:
    async with serving(tmp_path, *service(tmp_path)) as port:
        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        await eventually(lambda: instances(tmp_path) == {"replica-1"}, "one runs")
        # What is added to it before the instance has written its own line is written over.
        await eventually(lambda: (tmp_path / "replica-1").read_text(), "it has begun")
        with (tmp_path / "replica-1").open("a") as file:
            file.write("told to end\n")
        await eventually(lambda: (tmp_path / "replica-1.gone").exists(), "it has died")

        async def replaced() -> None:
            while "replica-2" not in instances(tmp_path):
                await ask(scaler, 1)  # a leader asks again, whatever it was answered

        await asyncio.wait_for(replaced(), WAIT_SECONDS)
        await scaler.close()


async def test_the_server_of_the_page_takes_its_own_token_only(tmp_path: Path) -> None:
    async with serving(tmp_path, *service(tmp_path)) as port:
        await eventually(lambda: instances(tmp_path) == {"replica-1"}, "one runs")
        for token in (None, "other", "s3cret-t0ke"):
            stranger = WebhookScaler(f"http://127.0.0.1:{port}/scale", token)
            assert await ask(stranger, 1, "replica-1") is Answer.REFUSED
            await stranger.close()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        connection.request("GET", "/scale")
        assert connection.getresponse().status == 501
        connection.close()

        scaler = WebhookScaler(f"http://127.0.0.1:{port}/scale", TOKEN)
        for replicas in (2, 3):
            assert await ask(scaler, replicas) is Answer.ACCEPTED
            await eventually(lambda n=replicas: f"replica-{n}" in instances(tmp_path), "one more")
        assert "told" not in (tmp_path / "replica-1").read_text(), "a stranger named it"
        await scaler.close()

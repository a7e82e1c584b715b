"""What ``chaos.long`` draws, what it does to connections, and how it holds a process up."""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.long.endings import Endings, heeds_sigterm
from chaos.long.faults import ALONE, FAULTS
from chaos.long.hold import Hold
from chaos.long.load import ABORTED, JOURNAL, RECORDS
from chaos.long.processes import Feeder
from chaos.long.proxy import HOST, Hole, Proxies, client_of
from chaos.long.schedule import drawn
from demo.journal import Journal, read_run
from loadtrim.testing.ports import free_ports

KINDS = sorted(FAULTS)


class TestTheSchedule:
    def test_equal_seeds_draw_equal_steps_and_details(self) -> None:
        first, again = (list(itertools.islice(drawn(7, KINDS, ALONE), 200)) for _ in range(2))
        assert first == again
        assert first[3].rng(7, "x").random() == again[3].rng(7, "x").random()
        assert first != list(itertools.islice(drawn(8, KINDS, ALONE), 200))

    def test_each_kind_comes_before_any_comes_again_and_some_come_together(self) -> None:
        steps = list(itertools.islice(drawn(7, KINDS, ALONE), 5 * len(KINDS)))
        assert Counter(step.kinds[0] for step in steps) == dict.fromkeys(KINDS, 5)
        together = [step.kinds for step in steps if len(step.kinds) == 2]
        assert together
        assert not [kinds for kinds in together if set(kinds) & ALONE or kinds[0] == kinds[1]]


def request_of(client: str) -> bytes:
    """The first bytes of a client's first request, ApiVersions."""
    return struct.pack(">ihhih", 0, 18, 0, 1, len(client)) + client.encode()


class TestTheProxy:
    @pytest.fixture
    def targets(self) -> dict[int, int]:
        return {}

    @pytest.fixture
    def proxies(self, targets: dict[int, int]) -> Iterator[Proxies]:
        with Proxies({1: free_ports(1)[0]}, targets) as made:
            yield made

    @pytest.fixture
    async def echo(self, targets: dict[int, int]) -> None:
        async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1_000):
                writer.write(data)
            writer.close()

        server = await asyncio.start_server(back, HOST, 0)
        targets[1] = server.sockets[0].getsockname()[1]

    async def connected(self, proxies: Proxies, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = proxies.bootstrap.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_of(client))
        assert client_of(await reader.readexactly(len(request_of(client)))) == client
        return reader, writer

    @pytest.mark.usefixtures("echo")
    async def test_one_clients_connections_are_cut_and_others_stay(self, proxies: Proxies) -> None:
        mine, _ = await self.connected(proxies, "m1")
        other, writer = await self.connected(proxies, "m2")
        assert proxies.cut(Hole(client="m1")) == 1
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await mine.readexactly(1)
        writer.write(b"more")
        assert await other.readexactly(4) == b"more"

    @pytest.mark.usefixtures("echo")
    async def test_what_is_swallowed_arrives_late(self, proxies: Proxies) -> None:
        reader, writer = await self.connected(proxies, "m1")
        proxies.swallow(Hole(broker=1))
        writer.write(b"late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        proxies.heal()
        assert await reader.readexactly(4) == b"late"

    @pytest.mark.usefixtures("echo")
    async def test_slow_is_both_ways_and_keeps_the_order(self, proxies: Proxies) -> None:
        reader, writer = await self.connected(proxies, "m1")
        proxies.slow(0.03)
        begun = asyncio.get_running_loop().time()
        for piece in (b"a", b"b", b"c"):
            writer.write(piece)
            await asyncio.sleep(0)
        assert await reader.readexactly(3) == b"abc"
        assert asyncio.get_running_loop().time() - begun >= 0.06

    async def test_a_broker_that_is_down_refuses(self, proxies: Proxies, targets: dict[int, int]) -> None:
        (targets[1],) = free_ports(1)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await self.connected(proxies, "m1")


class TestTheHold:
    async def test_a_process_waits_at_the_place_that_is_asked_for_and_at_no_other(self, tmp_path: Path) -> None:
        path = tmp_path / "x.hold"
        asked = asyncio.create_task(Hold(path).ask("here"))
        while not path.exists():  # noqa: ASYNC110 - the other side is a file
            await asyncio.sleep(0)
        process = Hold(path)
        await process.here("elsewhere")
        assert not asked.done()
        waits = asyncio.create_task(process.here("here"))
        await asked
        assert not waits.done()
        Hold(path).release()
        await waits
        await process.here("here")

    async def test_nobody_asked(self, tmp_path: Path) -> None:
        await Hold(tmp_path / "x.hold").here("here")


class TestTheFeeder:
    """What is written for one that was killed within a transaction."""

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Journal:
        journal = Journal(tmp_path / "run", JOURNAL, role="producer")
        for number in range(2 * RECORDS):
            journal.write("P", f"x-{number}", "ledger", 0, number, number)
        for number in range(RECORDS):
            journal.write("A", f"x-{number}", "ledger", 0, number, 100 + number)
        return journal

    @pytest.fixture
    def feeder(self, tmp_path: Path) -> Feeder:
        return Feeder("nowhere:1", "ledger", 1, tmp_path, 1)

    def test_its_open_transaction_counts_as_aborted(self, feeder: Feeder, journal: Journal, tmp_path: Path) -> None:
        assert feeder._write_aborted(os.getpid()) == RECORDS
        sent = read_run(tmp_path / "run").sent
        assert [sent[f"x-{number}"].refused for number in range(2 * RECORDS)] == [None] * RECORDS + [ABORTED] * RECORDS

    def test_a_transaction_that_had_ended_is_no_open_one(self, feeder: Feeder, journal: Journal) -> None:
        journal.write("A", f"x-{2 * RECORDS - 1}", "ledger", 0, 9, 200)
        with pytest.raises(AssertionError, match="had ended"):
            feeder._write_aborted(os.getpid())


class TestTheEnds:
    """Which ends of processes were asked for."""

    def test_one_that_survives_a_fault_is_expected_to_go_on(self) -> None:
        endings = Endings()
        with endings.expecting(["m1", "m2", "m3"], 4, crash=True):
            endings.ended("m1", 4)
        with endings.expecting(["m2"], 0):
            endings.ended("m2", 0)
        endings.ended("m3", 4)
        found = {name: (ending.crash, ending.expected) for name, ending in endings.found.items()}
        assert found == {"m1": (True, True), "m2": (False, True), "m3": (False, False)}

    def test_two_faults_meet_one_process(self) -> None:
        """It is told to stop and killed at once; whatever comes first was asked for, and only the kill is a crash."""
        endings = Endings()
        with endings.expecting(["m1", "m2"], 0), endings.expecting(["m1", "m2"], -9, crash=True):
            endings.ended("m1", 0)
            endings.ended("m2", -9)
        found = {name: (ending.crash, ending.expected) for name, ending in endings.found.items()}
        assert found == {"m1": (False, True), "m2": (True, True)}

    def test_when_one_was_told_to_stop(self) -> None:
        endings = Endings()
        with endings.expecting(["m1", "m2"], 0, stop=True), endings.expecting(["m2"], -9, crash=True):
            endings.ended("m1", 0)
            endings.ended("m2", -9)
        assert 0 < endings.found["m1"].asked_ns <= endings.found["m1"].at_ns
        assert endings.found["m2"].asked_ns > 0

    def test_a_process_that_is_through_with_its_consumer_does_not_know_the_signal(self) -> None:
        """Its user code raised a moment before."""
        start, handed, ended = ["S"], ["H", "t", "0", "1", "id", "5"], ["E", "6"]
        assert heeds_sigterm([start, handed])
        assert not heeds_sigterm([start])
        assert not heeds_sigterm([start, handed, ended])

    def test_another_code_than_was_asked_for(self) -> None:
        endings = Endings()
        with endings.expecting(["m1"], 0):
            endings.ended("m1", 1)
        endings.ended("plain1", 1, expected=True)
        endings.wrong("feeder ended with 1")
        assert [name for name, ending in endings.found.items() if not ending.expected] == ["m1", "feeder ended with 1"]

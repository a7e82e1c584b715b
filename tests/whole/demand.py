"""``python -m whole.demand [CELL ...]``: programs and loads of ``benchmarks.programs``, played on virtual time.

The whole product runs: consumers, agents, the leader's plans, a model of Kafka. An orchestrator that is played here
starts as many members as the leader asks for, and ends those that it names, as that of ``loadtrim up`` does. This is
the laboratory: neither user code nor the product takes any processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiokafka.record.memory_records import MemoryRecords
from benchmarks.code_state import commit_now
from benchmarks.programs.cells import Arrival, Cell, arrivals, cell_named, cells
from benchmarks.programs.judge import Done, Life, Played, Sent, Verdict, judge
from benchmarks.programs.search import Search
from benchmarks.programs.table import CellResult, load_results, markdown, result_of, save_result

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from loadtrim_agent.runtime import services
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.topic_names import control_topic

from .broker import Cluster
from .kernel import EPOCH_SECONDS, Clock, Kernel, Process, Takes
from .member import GROUP, SimConsumer, threads_in_charge
from .network import Network
from .world import TOPIC

__all__ = ["Demand", "search_of"]

STEP_SECONDS = 0.5
FIRST_GENERATION_SECONDS = 1.0
LINGER_SECONDS = 0.05
"""Of the producer. Chosen: a sixtieth of the shortest objective, and a fifth of the requests at 100 records/s."""
READ_BYTES = 1 << 40
FORM = "laboratory"


class _Work:
    """What user code does with a record, in one member: the record says how long."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand

    async def __call__(self, record: Any) -> None:
        await asyncio.sleep(self._demand.busy_seconds(record))
        self._demand.did(record)

    def blocking(self, record: Any) -> Takes:
        return Takes(self._demand.busy_seconds(record), lambda: self._demand.did(record))


class _Member:
    def __init__(self, demand: Demand, name: str, asked_at: float) -> None:
        self._demand = demand
        self.name = name
        self.asked_at = asked_at
        self.leaving = False
        self.ended_at: float | None = None
        self.consumer: SimConsumer | None = None
        self.process = Process(demand.kernel, name, Clock())
        self.task = self.process.run(self._main())

    async def _main(self) -> None:
        cell = self._demand.cell
        self.consumer = SimConsumer(
            self._demand.kernel, self.name, TOPIC,
            settings=self._demand.settings | {"requested_at": EPOCH_SECONDS + self.asked_at},
            auto_offset_reset="earliest", auto_commit_interval_ms=1000, **cell.shape.options,
        )  # fmt: skip
        await self.consumer.start()
        await cell.shape.run(self.consumer, _Work(self._demand))
        await self.consumer.stop()
        self.ended_at = self._demand.kernel.now

    def crash(self) -> None:
        """``kill -9``."""
        self.leaving, self.ended_at = True, self._demand.kernel.now
        self.process.kill()

    def end(self) -> None:
        self.leaving = True
        assert self.consumer is not None
        self.consumer._client.end_iteration(False)


class _Scaler:
    """The leader's way to the orchestrator."""

    name = "webhook"
    scales = True
    withdrawable = False
    per_generation = False

    def __init__(self) -> None:
        self.asked: ScaleRequest | None = None
        """What was asked for last."""

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        self.asked = wanted
        return ScaleOutcome(Answer.ACCEPTED)

    def withdraw(self) -> None:
        """What was carried out stays."""

    async def close(self) -> None:
        """Nothing to close."""


class Demand:
    """One run.

    Args:
        cell: program, load and objective.
        seed: of arrivals, records and the order in which processes get their turns.
        replicas: a fixed number, all there when the load begins; None: as the default policy asks for, from one on.
        load: the records; None: those of the cell and the seed.
        settings: further ones, by the names of ``LOADTRIM_*``.
    """

    def __init__(
        self,
        cell: Cell,
        seed: int,
        replicas: int | None = None,
        *,
        load: Iterable[Arrival] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.cell = cell
        self.kernel = Kernel(seed)
        self.settings: dict[str, Any] = {
            "sla_seconds": cell.objective_seconds, "sla_share": cell.objective_share,
            **({"policy": f"fixed:replicas={replicas}"} if replicas else {}), **(settings or {}),
        }  # fmt: skip
        self._replicas = replicas or 1
        self._load = deque(arrivals(cell, seed) if load is None else load)
        self._cluster = Cluster(self.kernel, nodes=1)
        Network(self.kernel, self._cluster)
        self._cluster.create(TOPIC, cell.partitions)
        self._busy: dict[tuple[int, int], float] = {}
        self._sent: list[Sent] = []
        self._done: list[Done] = []
        self._members: list[_Member] = []
        self._scaler = _Scaler()
        self._starting: list[float] = []
        """Times since the kernel's zero at which replicas were asked for that are not there yet."""
        self._began = 0.0
        self.played: Played | None = None
        """All that was written down, once it has run."""

    def run(self, crashes: Iterable[float] = ()) -> Verdict:
        """Play the load, wait until all of it is done, and judge.

        Args:
            crashes: seconds of the load at which the member that joined last is killed.
        """
        played = patch.object(services, "make_scaler", lambda *_: self._scaler)
        with self.kernel.in_charge(), threads_in_charge(), played:
            for _ in range(self._replicas):
                self._join(self.kernel.now)
            self.kernel.run(FIRST_GENERATION_SECONDS)
            self._began = self.kernel.now
            for at in crashes:
                self.kernel.scheduler.at(self._began + at, self._crash)
            self._write_next()
            while self._at < self.cell.seconds:
                self._step()
            # What is not done in as long a time again is lost, or as good as lost.
            while len({each[1:] for each in self._done}) < len(self._sent) and self._at < 2 * self.cell.seconds:
                self._step()
            self._raise_failures()
            self.played = self._played()
        return judge(self.cell, self.played)

    # -- user code's side ----------------------------------------------------------------------------------------

    def busy_seconds(self, record: Any) -> float:
        """Return the record's time."""
        return self._busy[record.partition, record.offset]

    def did(self, record: Any) -> None:
        """Note that a program is through with a record."""
        self._done.append(Done(self._at, record.partition, record.offset))

    # -- the load ------------------------------------------------------------------------------------------------

    @property
    def _at(self) -> float:
        return self.kernel.now - self._began

    def _write_next(self) -> None:
        """Wait for the next record, and send it with all that come within the producer's linger."""
        if self._load:
            self.kernel.scheduler.at(self._began + self._load[0].at + LINGER_SECONDS, self._write)

    def _write(self) -> None:
        batches: dict[Partition, list[tuple[float, bytes]]] = {}
        while self._load and self._load[0].at <= self._at:
            arrival = self._load.popleft()
            partition = Partition(TOPIC, arrival.partition)
            batch = batches.setdefault(partition, [])
            offset = self._cluster.stores[partition].end + len(batch)
            self._busy[arrival.partition, offset] = arrival.busy_seconds
            self._sent.append(Sent(arrival.at, arrival.partition, offset))
            batch.append((self._began + arrival.at, b"x"))
        self._cluster.put_batches(batches)
        self._write_next()

    # -- the orchestrator's side ---------------------------------------------------------------------------------

    def _step(self) -> None:
        self.kernel.run(STEP_SECONDS)
        self._orchestrate()

    def _join(self, asked_at: float) -> None:
        self._members.append(_Member(self, f"m{len(self._members) + 1}", asked_at))

    def _crash(self) -> None:
        next(member for member in reversed(self._members) if not member.leaving).crash()

    def _started(self) -> None:
        self._join(self._starting.pop(0))

    def _orchestrate(self) -> None:
        asked = self._scaler.asked
        if asked is None:
            return
        for member in self._members:
            if member.name in asked.victims and not member.leaving:
                member.end()
        there = sum(not member.leaving for member in self._members)
        for _ in range(asked.replicas - there - len(self._starting)):
            self._starting.append(self.kernel.now)
            self.kernel.scheduler.after(self.cell.start_seconds, self._started)

    def _raise_failures(self) -> None:
        for member in self._members:
            if member.task.done() and not member.process.gone and (error := member.task.exception()) is not None:
                raise RuntimeError(f"the program of {member.name} failed") from error

    # -- what was written down -----------------------------------------------------------------------------------

    def _played(self) -> Played:
        end = float("inf")
        lives = [
            Life(m.asked_at - self._began, end if m.ended_at is None else m.ended_at - self._began)
            for m in self._members
        ]
        lives += [Life(asked_at - self._began, end) for asked_at in self._starting]
        control = sorted(self._control(), key=lambda entry: entry[0])
        return Played(self._sent, self._done, lives, control, GROUP)

    def _control(self) -> Iterator[tuple[float, Record]]:
        name = control_topic(GROUP)
        for index in range(self._cluster.topics.get(name, 0)):
            batches = MemoryRecords(self._cluster.stores[Partition(name, index)].read(0, READ_BYTES))
            while (batch := batches.next_batch()) is not None:
                for entry in batch:
                    try:
                        record = decode(entry.value)
                    except UnreadableRecord:
                        continue
                    yield entry.timestamp / 1e3 - EPOCH_SECONDS - self._began, record


def search_of(cell: Cell, seed: int, begin: int | None = None) -> Search:
    """Find the fewest replicas that hold the objective."""
    search = Search(cell.replicas_least, cell.partitions, cell.objective_share, begin)
    while (replicas := search.next) is not None:
        search.tell(replicas, Demand(cell, seed, replicas).run())
    return search


def main() -> int:
    """Play cells. Returns the exit code: 0 nothing is off, 1 something is, 2 wrong use."""
    parser = argparse.ArgumentParser(prog="python -m whole.demand", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="PROGRAM/LOAD, or either of the two; none: all")
    parser.add_argument("--seed", type=int, help="of the loads (default: drawn, and printed)")
    parser.add_argument("--list", action="store_true", help="tell what cells there are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep results there, beside those of other cells")
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="take the fewest from there where the seed is the same"
    )
    parser.add_argument("--reasons", action="store_true", help="print why it scaled in the judged time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    found = {cell.name: cell for cell in cells(random.Random(seed))}
    try:
        chosen = _chosen(options.cells, found)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(found))
        return 0
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    print(f"seed {seed}", file=sys.stderr)
    kept = {each.name: each for each in load_results(options.kept)} if options.kept else {}
    results = []
    for cell in chosen:
        results.append(_play(cell, seed, kept.get(cell.name)))
        print(markdown(results).splitlines()[-1], file=sys.stderr, flush=True)
        if options.reasons:
            print("\n".join(results[-1].verdict.reasons), results[-1].verdict.wanted, file=sys.stderr, flush=True)
        if options.json:
            save_result(options.json, results[-1])
    print(markdown(results))
    return 1 if any(result.problems for result in results) else 0


def _chosen(names: list[str], found: dict[str, Cell]) -> list[Cell]:
    """Return the cells of these names, each once; a name of a program or a load stands for all of its cells."""
    chosen: dict[str, Cell] = {}
    for name in names or [""]:
        of_it = [cell for cell in found.values() if name in ("", cell.program, cell.load)]
        chosen |= {cell.name: cell for cell in of_it or [cell_named(name, found)]}
    return list(chosen.values())


def _play(cell: Cell, seed: int, kept: CellResult | None) -> CellResult:
    search = Search(cell.replicas_least, cell.partitions, cell.objective_share)
    if kept is not None and kept.seed == seed:
        search.tried.update(kept.tried)
    else:
        search = search_of(cell, seed)
    return result_of(cell, seed, FORM, search, Demand(cell, seed).run(), commit_now())


if __name__ == "__main__":
    sys.exit(main())

"""The loads that are compared on: what arrives, what a record costs, what is promised.

Recorded loads are not part of the project: :mod:`.datasets` says what is played of them and what stands in for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks.compare.datasets import RecordedRates, landau_stream, taxi, ten_minutes, world_cup
from loadtrim.simulate import Load, parse_generator, shares_even, shares_skewed
from loadtrim_agent.common.partition import Partition

__all__ = ["COST_SECONDS", "LEVELS", "SCENARIOS", "Scenario", "constant_name", "scenario_of"]

COST_SECONDS = 0.0059
OBJECTIVE_SECONDS = 0.5
QUICK_SECONDS = 60
WORTH = (OBJECTIVE_SECONDS - 0.015) / COST_SECONDS
"""Records of a one-second burst that one replica does in time, with what sizing always keeps free."""
LEVELS = (0.6, 0.95, 1.6, 1.9, 2.6, 2.85, 3.6, 3.8)
"""Replicas' worth of the constant loads: 5 % and more below a whole number."""
ICCBDC_RAMPS = ((0, 120), (1, 120), (2, 240), (3, 360))
"""Experiment 1 of ICCBDC'22: (partition, second at which its rate begins to rise)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load with all that is needed to play it."""

    name: str
    title: str
    load: Load
    cost_seconds: float = COST_SECONDS
    objective_seconds: float = OBJECTIVE_SECONDS
    recorded: bool | None = None
    """False: a stand-in for a recording; None: made, and nothing else."""

    @property
    def worth(self) -> float:
        """Records of a second that one replica does in time: of a burst within W, of an even stream all that it can."""
        seconds = min(self.objective_seconds, 1.0) if self.load.arrivals == "burst" else 1.0
        return seconds / self.cost_seconds

    @property
    def replicas(self) -> int:
        """At the start: what the first second takes. Who begins with too few is late for reasons that are nobody's."""
        return min(len(self.load.partitions), max(1, math.ceil(self.load.per_second[0] / self.worth)))

    def cut(self, seconds: int) -> Scenario:
        """Its first seconds."""
        return replace(self, load=self.load.part(0, seconds))


def _trace(name: str, title: str, shares: Sequence[float]) -> Callable[[], Scenario]:
    def make() -> Scenario:
        rates = ten_minutes()
        load = Load(
            per_second=rates.per_second,
            partitions=tuple(Partition("payments", index) for index in range(len(shares))),
            shares=(tuple(shares),),
            arrivals="burst",
            keys="fixed",
            source=rates.source,
        )
        return Scenario(name=name, title=title, load=load, recorded=rates.recorded)

    return make


def _made(name: str, title: str, text: str, partitions: int) -> Callable[[], Scenario]:
    def make() -> Scenario:
        load = replace(parse_generator(text, partitions), arrivals="burst", keys="fixed")
        return Scenario(name=name, title=title, load=load)

    return make


def _of_rates(name: str, title: str, rates: Sequence[float], partitions: int) -> Scenario:
    made = parse_generator(f"constant:seconds={len(rates)}", partitions)
    load = replace(made, per_second=tuple(rates), arrivals="burst", keys="fixed", source=title)
    return Scenario(name=name, title=title, load=load)


def _steps() -> Scenario:
    rates = [rate for rate in (100.0, 300.0, 160.0, 380.0, 60.0) for _ in range(60)]
    return _of_rates("steps", "steps of a minute: 100, 300, 160, 380, 60/s; 9 partitions", rates, 9)


def _long() -> Scenario:
    """The quiet quarter of an hour is longer than any policy waits before it gives back (480 s)."""
    steps = ((240.0, 5), (60.0, 15), (180.0, 5), (60.0, 5))
    rates = [rate for rate, minutes in steps for _ in range(60 * minutes)]
    title = "half an hour: 240/s for 5 minutes, 60 for 15, 180 for 5, 60 for 5; 9 partitions"
    return _of_rates("long", title, rates, 9)


def _of_recording(name: str, title: str, make: Callable[[], RecordedRates], partitions: int) -> Callable[[], Scenario]:
    def scene() -> Scenario:
        rates = make()
        made = _of_rates(name, f"{title}; {partitions} partitions", rates.per_second, partitions)
        return replace(made, load=replace(made.load, source=rates.source), recorded=rates.recorded)

    return scene


def _landau(name: str, iterations: int, objective_seconds: float) -> Callable[[], Scenario]:
    def make() -> Scenario:
        load, recorded = landau_stream(iterations)
        return Scenario(
            name=name,
            title=f"Landau's stream, delta 5, {iterations} iterations of 30 s; 32 partitions, evenly in the second, "
            f"33 ms a record, W = {objective_seconds:g} s",
            load=load,
            cost_seconds=1.0 / 30.0,
            objective_seconds=objective_seconds,
            recorded=recorded,
        )

    return make


def _iccbdc() -> Scenario:
    """Every partition 15/s; four rise by 1/s each second to 60/s, two together, then one, then one; back at 480 s."""
    rows = []
    for second in range(600):
        row = [15.0] * 5
        for index, since in ICCBDC_RAMPS:
            if second < 480:
                row[index] += min(45.0, max(0.0, float(second - since)))
        rows.append(row)
    load = Load(
        per_second=tuple(sum(row) for row in rows),
        partitions=tuple(Partition("payments", index) for index in range(5)),
        shares=tuple(tuple(rate / sum(row) for rate in row) for row in rows),
        keys="fixed",
        source="ICCBDC'22, experiment 1",
    )
    title = "ICCBDC'22, experiment 1; 5 partitions, 10 ms a record, W = 5 s"
    return Scenario(name="iccbdc22", title=title, load=load, cost_seconds=0.01, objective_seconds=5.0)


def constant_name(level: float, seed: int) -> str:
    """Of the scene with a constant load of so many replicas' worth and +-10 % noise."""
    return f"constant-{level:g}-{seed}"


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "trace": _trace("trace", "10-minute trace, 5 partitions", shares_even(5)),
    "trace-skewed": _trace("trace-skewed", "10-minute trace, half of it on 2 of 9 partitions", shares_skewed(9)),
    "cosine": _made(
        "cosine",
        "cosine of 200 +- 130/s, period 150 s, noise +-5 %; 9 partitions",
        "cosine:mean=200,amplitude=130,period=150,seconds=300,noise=0.05",
        9,
    ),
    "steps": _steps,
    "ramp": _made("ramp", "ramp from 20 to 420/s; 9 partitions", "ramp:begin=20,end=420,seconds=300", 9),
    "constant": _made(
        "constant", "constant 215/s, noise +-10 %; 5 partitions", "constant:rate=215,seconds=300,noise=0.1", 5
    ),
    "spike": _made(
        "spike",
        "100/s with a spike of 20 s to 400/s; 9 partitions",
        "spike:rate=100,height=300,at=120,width=20,seconds=300",
        9,
    ),
    "drift": _made(
        "drift",
        "200/s, one partition's share goes from a sixth to two fifths; 6 partitions",
        "drift:rate=200,seconds=300,to=0.4",
        6,
    ),
    "world-cup": _of_recording("world-cup", "a day of World Cup matches", world_cup, 7),
    "taxi": _of_recording("taxi", "two days of taxi trips", taxi, 6),
    "landau": _landau("landau", 4, OBJECTIVE_SECONDS),
    "long": _long,
}
"""What every policy is played on."""
OTHERS: dict[str, Callable[[], Scenario]] = {
    "iccbdc22": _iccbdc,
    "landau-100": _landau("landau-100", 100, 0.2),
}
"""Only for targets. The stream's: p99 <= 0.1 s, three records' time; W is what came nearest to it
(docs/decisions/placement.md#slicing)."""


@lru_cache(maxsize=32)
def scenario_of(name: str, quick: bool = False) -> Scenario:
    """Make one by its name; ``quick``: its first minute."""
    if name in SCENARIOS or name in OTHERS:
        scene = (SCENARIOS | OTHERS)[name]()
    else:
        _, level, seed = name.split("-")
        rate = float(level) * WORTH
        text = f"constant:rate={rate!r},seconds=300,noise=0.1,seed={seed}"
        title = f"constant {rate:.0f}/s ({level} replicas' worth), noise +-10 %; 5 partitions"
        scene = _made(name, title, text, 5)()
    return scene.cut(QUICK_SECONDS) if quick else scene

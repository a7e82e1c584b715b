"""Why a target is missed, where it is known; told on the page only where it is missed."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.compare.runs import choice_of

__all__ = ["LANDAU", "OFF_FRONT", "QUIET", "UNKNOWN", "why_off_front", "why_scales"]

UNKNOWN = "not looked into yet"
LONG_STARTUP_SECONDS = 10.0
"""From here on what rises within a start-up time decides."""
RISES = (
    "what the last minutes do not foretell is late for a start-up time, and patience as long as it takes to start a "
    "replica ([decision on sizing](decisions/sizing.md)) then keeps what was asked for"
)
OFF_FRONT = {
    ("cosine", 60.0): (
        "it gives one of five replicas back in the trough, is late for a start-up time when the load comes back, and "
        "then buys up to nine for what five leave late, as nine partitions divide badly; whoever waits as long as the "
        "load lasts, or is told its peak, keeps the five that there were in the beginning"
    ),
    ("steps", 10.0): (
        "it gives back what 160/s do not need, so that 380/s find too few for a start-up time, and has missed its "
        "share by then, for which it buys all nine replicas, as nine partitions divide badly"
    ),
    ("steps", 60.0): "a step is over when the replicas that it takes are there; they are kept, nine in the end",
    ("spike", 60.0): (
        "the spike's 20 s are over when the replicas that they take are there, and these cost for the 66 s of patience "
        "all the same"
    ),
    ("drift", 60.0): (
        "no partition's share is forecast: it asks for a fourth replica when one partition has outgrown three, at the "
        "moment when `iccbdc22` does, which moves more and takes back what is still starting as soon as it packs into "
        "three again, where patience keeps it"
    ),
    ("world-cup", 60.0): "the load grows to four times and more within half a minute; what comes too late is kept",
    ("taxi", 10.0): (
        "it grows fivefold within ten seconds of nothing, each morning, after what the night did not need was given "
        "back; the day before would tell ([baselines](baselines.md))"
    ),
    ("taxi", 60.0): "the first morning comes within a start-up time; from then on every partition keeps a replica",
}
"""By load and start-up time, as `objective`'s decisions in these runs and docs/decisions/sizing.md tell."""
ONLY_TOLD = "nobody is better there but who is told the load's mean or peak beforehand"
QUIET = {
    "1.6": (
        "two members have three and two of five partitions, and three take 0.96 of what one member does, so that two "
        "leave 0.1 to 0.2 % late where 0.1 may be: noise that looks larger than it is in the first seconds buys a "
        "third replica, and it goes back, once, when it looks smaller minutes later "
        "([decision on sizing](decisions/sizing.md))"
    )
}
"""By replicas' worth of a constant load."""
LANDAU = (
    "0.1 s are three records' time (33 ms each), and what members know of each other is up to 0.5 s old, in which one "
    "does fifteen; asked for less than W = 0.2 s they pass everything to and fro, and to keep a tenth free takes 13.9 "
    "consumers for 0.14 s ([decision on slicing](decisions/slicing.md))"
)


def why_off_front(scene: str, startup_seconds: float, better: Collection[str]) -> str:
    """Why ``objective`` is not on the front where those are better."""
    known = OFF_FRONT.get((scene, startup_seconds)) or (RISES if startup_seconds >= LONG_STARTUP_SECONDS else "")
    told = ONLY_TOLD if all(choice_of(name).told for name in better) else ""
    return f"{startup_seconds:g} s: {'; '.join(filter(None, (known, told))) or UNKNOWN}"


def why_scales(level: str) -> str:
    """Why a constant load of so many replicas' worth does not stay quiet."""
    return f"{level}: {QUIET.get(level, UNKNOWN)}"

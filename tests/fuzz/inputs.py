"""Records that nobody would write: random bytes, golden records with bytes or values changed, and believable ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["Live", "Shape", "make_baseline", "make_record"]

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = [json.loads(line) for line in (GOLDEN / "records-v1.jsonl").read_text(encoding="utf-8").splitlines()]
BASELINES = [json.loads(line) for line in (GOLDEN / "baselines-v1.jsonl").read_text(encoding="utf-8").splitlines()]

REPORTS = [record for record in RECORDS if record["kind"] == "report"]

NUMBERS = (
    0, 1, -1, 2, 7, 0.5, -0.5, 1e-9, -0.0, 60, 3600, 86_400, 1e6, 1e9, -1e9, 1e12, 1e15, 1e24, 1e30, 1e300, -1e300,
    2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400, 5e-324,
)  # fmt: skip
TEXTS = ("", "x", "c-1", "c-2", "payments", "nobody", "\x00", "\x1b]0;t\x07", "[/a]", "ä" * 50, "x" * 5_000, "../..")


@dataclass(slots=True)
class Live:
    """Names and times of the group that the records are thrown at: what they have to be to be believed."""

    group: str
    members: tuple[str, ...]
    topic: str
    partitions: int
    now: float
    generation: int = 1


def make_record(rng: Random, live: Live) -> tuple[str, bytes]:
    """Return how it was made, and the bytes of one record of the control topic."""
    return _made(rng, lambda: _believable(rng, live))


def make_baseline(rng: Random, live: Live) -> tuple[str, bytes]:
    """The same for the baseline topic."""

    def believable() -> Any:
        record = _copy(rng.choice(BASELINES))
        record |= {"group": live.group, "at": live.now - 86_400.0, "to": live.now - 3600.0}
        if "topic" in record:
            record["topic"] = live.topic
        return record

    return _made(rng, believable)


Shape = Callable[[], Any]


def _made(rng: Random, believable: Shape) -> tuple[str, bytes]:
    lot = rng.random()
    if lot < 0.05:
        return "random bytes", rng.randbytes(rng.choice((0, 1, 3, 20, 200)))
    line = json.dumps(believable()).encode()
    if lot < 0.20:
        return "bytes changed", _bytes_changed(rng, line)
    if lot < 0.22:
        depth = rng.choice((5, 900, 1_000, 1_500, 20_000))
        return "nested", line[:-1] + b',"x":' + b"[" * depth + b"]" * depth + b"}"
    if lot < 0.65:
        record = json.loads(line)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            _change(rng, record)
        return "values changed", json.dumps(record).encode()
    return "believable", line


def _bytes_changed(rng: Random, line: bytes) -> bytes:
    changed = bytearray(line)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[at : at + rng.choice((1, 5, 100))]
            case 2:
                changed[at:at] = bytes(rng.choice(b'0123456789eE+-.,:[]{}" \\') for _ in range(rng.choice((1, 3))))
            case _:
                begin = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[begin : begin + 40]
    return bytes(changed)


def _change(rng: Random, record: Any) -> None:
    """Change one value, however deep."""
    place = record
    while place:
        key = rng.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        match rng.randrange(10):
            case 0:
                del place[key]
            case 1:
                place[key] = rng.choice((None, True, False, [], {}, [[]], {"x": 1}))
            case 2:
                place[key] = rng.choice(TEXTS)
            case 3 if isinstance(place, list):
                place[key:key] = [place[key]] * rng.choice((1, 10, 300))
            case 4 if isinstance(place, dict):
                place[rng.choice(TEXTS)] = place[key]
            case _:
                place[key] = rng.choice(NUMBERS)
        return


def _believable(rng: Random, live: Live) -> Any:
    """A golden record as a member of the group could write it now, with numbers a little off."""
    record = _copy(rng.choice(RECORDS if rng.random() < 0.6 else REPORTS))
    record["group"] = live.group if rng.random() < 0.97 else "another"
    record["member"] = _member(rng, live)
    record["at"] = live.now + rng.choice((0.0, 0.0, -1.0, 30.0, -4000.0))
    if "generation" in record:
        record["generation"] = live.generation + rng.choice((0, 0, 0, 0, -1, 1, 5, 1000))
    if "sequence" in record:
        record["sequence"] = rng.choice((rng.randrange(1_000_000), rng.randrange(2**53), 2**62))
    record = _renamed(rng, live, record)
    match record["kind"]:
        case "report":
            _report(rng, live, record)
        case "release":
            record |= {"version": rng.choice((0, 0, 1, 2, 50)), "offset": rng.randrange(2**40)}
        case "base":
            record["members"] = {_member(rng, live): entry for entry in record["members"].values()}
        case "decision":
            record["replicas_wanted"] = rng.choice((1, 4, 1_000, 1_000_000))
            record["state"] = {"wanted": rng.choice((1.0, 4.0, 1e6, 1e9))}
    return record


def _report(rng: Random, live: Live, record: Any) -> None:
    record["slots_start"] = live.now - 1.0 + rng.choice((0.0, 0.0, 0.1, -5.0, 30.0, 59.0, -500.0, 1e6, -1e6))
    record["slots"] = [rng.choice((0.0, 0.01, 1.0, 1e6)) for _ in range(rng.choice((0, 10, 10, 300)))]
    for entry in record["partitions"]:
        entry |= {
            "arrived": rng.choice((0, 90, 10**9)), "done": rng.choice((0, 90, 10**9)), "lag": rng.choice((0, 3, 10**9)),
            "cost_mean": rng.choice((0.0, 1e-12, 0.0059, 1e6)), "cost_variance": rng.choice((0.0, 1e-7, 1e24)),
            "state": rng.choice(("running", "running", "paused", "blocked", "idle", "gone", "odd")),
            "work_windows": [[rng.choice((0.0, 0.5, 2.0, 1e12)), rng.choice((0.0, 0.2, 1e24)), 0.01, 0.4]],
        }  # fmt: skip
    record |= {
        "interval": rng.choice((0.0, 1e-12, 1.0, 1e12)), "concurrency": rng.choice((0.0, 1e-12, 2.0, 1e6)),
        "speed": rng.choice((0.0, 1e-12, 1.0, 1e6)), "startup_seconds": rng.choice((None, 0.0, 12.0, 3600.0)),
    }  # fmt: skip


def _renamed(rng: Random, live: Live, value: Any) -> Any:
    """The golden names of members, topic and partitions become those of the group."""
    match value:
        case dict():
            named = {key: _renamed(rng, live, each) for key, each in value.items()}
            if "partition" in named:
                named["partition"] = rng.randrange(live.partitions + 1)
            return named
        case list():
            return [_renamed(rng, live, each) for each in value]
        case "c-1" | "c-2":
            return _member(rng, live)
        case "payments":
            return live.topic
    return value


def _member(rng: Random, live: Live) -> str:
    return rng.choice(live.members) if rng.random() < 0.8 else f"stranger-{rng.randrange(10**9)}"


def _copy(record: Any) -> Any:
    return json.loads(json.dumps(record))

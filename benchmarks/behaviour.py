"""What simulated runs depend on, told by what they do: the key under which their results are cached.

A digest of source files would lose hours of runs to each renamed variable. Instead a few short runs (probes) are
played, and the key is the digest of what came of them. It changes where a decision, a handoff or a latency changes,
and nowhere else. A probe takes 0.2 to 0.5 s of CPU (measured). Its digest is stored below ``out/`` under the digest of
the sources. So it is played once for each state of the sources.

A change that no probe shows keeps the key, but for our own policy (:func:`behaviour`). So each run is probed with its
own policy and packer, as it names them, beside the four handoff protocols. The load of a probe rises, falls and is
noisy.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import loadtrim
import loadtrim_agent
from loadtrim.simulate import PROTOCOLS, Costs, Load, Options, PlanConfig, parse_generator, protocol_of, simulate

__all__ = ["behaviour", "shape", "source_digest"]

FILE = Path(__file__).resolve().parents[1] / "out" / "behaviour.json"
LOAD = "cosine:mean=150,amplitude=-120,period=30,seconds=30,noise=0.2"
"""Chosen: from less than one replica's worth to four and back, with noise that policies have to see through."""
PARTITIONS, OBJECTIVE_SECONDS, COST_SECONDS, STARTUP_SECONDS = 5, 0.5, 0.0059, 1.0
REPLICAS_AT = ((5.0, 4), (15.0, 2), (22.0, 3))
"""Chosen: up, down and up again, so that a packer has to place, to empty and to balance."""
OWN_POLICY = "objective"
ROOMS = ("common", "wire", "metering", "planning")
"""Rooms of the agent that a simulated run executes."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Short runs, with arrivals in bursts and evenly.

    Their replicas are the policy's, or :data:`REPLICAS_AT` for the policy ``fixed``.
    """

    policy: str
    packer: str = "sticky"
    protocol: str = "loadtrim"
    slicing: bool = False

    def played(self) -> str:
        """Play it. Returns the digest of its figures; sentences in decisions do not count."""
        config = PlanConfig(
            group="probe",
            sla_seconds=OBJECTIVE_SECONDS,
            policy=self.policy,
            packer=self.packer,
            startup_seconds=STARTUP_SECONDS,
        )
        options = Options(
            costs=Costs(mean_seconds=COST_SECONDS),
            startup_seconds=STARTUP_SECONDS,
            protocol=protocol_of(self.protocol),
            slicing=self.slicing,
            replicas_at=REPLICAS_AT if self.policy == "fixed" else (),
        )
        load = parse_generator(LOAD, PARTITIONS)
        return _digest("".join(_figures(replace(load, arrivals=kind), config, options) for kind in ("burst", "even")))


def _figures(load: Load, config: PlanConfig, options: Options) -> str:
    outcome = simulate(load, config, options)
    wanted = [(at, decision.replicas_wanted) for at, decision in outcome.decisions]
    figures = (*astuple(outcome.curves), outcome.latencies_least(), outcome.moves, outcome.slices)
    costs = (outcome.replica_minutes, outcome.rebalances, sorted(outcome.done_by_partition.items()))
    return repr((wanted, figures, costs))


SHARED = tuple(Probe("fixed", protocol=protocol) for protocol in PROTOCOLS)
"""What every run depends on: arrivals, members, meters and how partitions change hands."""


def behaviour(policy: str, packer: str, slicing: bool = False) -> str:
    """Return the digest of how the code behaves that plays a run with this policy and packer.

    Of our own policy each change of a source counts. Its rules meet loads that no probe has. A mistake that made 97.5 %
    cost as much as 99.9 % kept the key, and so did its mend.

    Args:
        policy: name and parameters, as in the run's configuration; likewise ``packer``.
    """
    if policy.partition(":")[0] == OWN_POLICY:
        return source_digest()
    return _of((*SHARED, Probe("fixed", packer), Probe(policy, packer, slicing=slicing)))


def shape(*of: Path | Callable[..., Any]) -> str:
    """Return the digest of what files or functions do: comments, docstrings and layout do not count."""
    dumped = []
    for each in of:
        tree = ast.parse(each.read_text() if isinstance(each, Path) else inspect.getsource(each))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
        dumped.append(ast.dump(tree))
    return _digest("\n".join(dumped))


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


@cache  # what was imported is what runs, whatever becomes of the files meanwhile
def source_digest() -> str:
    """Return the digest of every file that a simulated run may execute, as they were when this process first asked."""
    agent, sdk = Path(loadtrim_agent.__file__).parent, Path(loadtrim.__file__).parent
    files = [path for room in ROOMS for path in (agent / room).glob("**/*.py")]
    files += [*sdk.glob("simulate/**/*.py"), Path(__file__)]
    return _digest("".join(path.read_text() for path in sorted(files)))


_played: dict[str, str] = {}
"""Digests by probe, of this process; what it forks has them too."""


def _of(probes: tuple[Probe, ...]) -> str:
    if any(repr(probe) not in _played for probe in probes):
        _played.update(_stored())
        missing = {repr(probe): probe for probe in probes if repr(probe) not in _played}
        _played.update({name: probe.played() for name, probe in missing.items()})
        if missing:
            _store()
    return _digest(" ".join(_played[repr(probe)] for probe in probes))


def _stored() -> dict[str, str]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        sources, digests = msgspec.json.decode(FILE.read_bytes(), type=tuple[str, dict[str, str]])
        return digests if sources == source_digest() else {}
    return {}


def _store() -> None:
    """Written beside and renamed, for several processes may do it at once."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    half = FILE.with_suffix(f".{os.getpid()}")
    half.write_bytes(msgspec.json.encode((source_digest(), _played)))
    half.replace(FILE)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

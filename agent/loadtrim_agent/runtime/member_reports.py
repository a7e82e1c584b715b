"""A member's reports go to the control topic, while it can be used."""

from __future__ import annotations

from typing import Protocol

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.slicing_task import SlicingTask
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.observability.probes import Probes
from loadtrim_agent.protocol.pace import load_seconds
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.codec import Record

__all__ = ["MemberReports"]


class _Agent(Protocol):
    def snapshot(self) -> MachineSnapshot: ...

    @property
    def log(self) -> ControlLog | None: ...


class MemberReports:
    """Implements :class:`loadtrim_agent.delivery.ports.ReportTarget`.

    Args:
        agent: whose member reports.
        probes: of this process.
        slicing: of this member.
        pod: of this process, as NAME/UID; empty: it is in none, or does not say.
    """

    def __init__(self, agent: _Agent, probes: Probes, slicing: SlicingTask, pod: str) -> None:
        self._agent = agent
        self._slicing = slicing
        self.pod = pod
        self._probes = probes

    def member(self) -> tuple[str, int]:
        """Member id and generation now."""
        now = self._agent.snapshot()
        return now.member, now.generation

    def unready(self) -> bool:
        """Return whether an orchestrator knows by the readiness probe that this process is to go."""
        return self._probes.known_unready

    def slicing_off(self) -> str:
        """Return why the member passes nothing on by its own decision, rebalances apart; empty: it does."""
        return self._slicing.lasting_off().value

    def load_seconds(self) -> float:
        """Longest time between two ``load`` records."""
        assignment = self._agent.snapshot().assignment
        return load_seconds(len(assignment.members) if assignment is not None else 0)

    def committed(self) -> dict[Partition, int]:
        """Offset acknowledged last, per owned partition."""
        assigned = self._agent.snapshot().assigned
        return {p: view.committed for p, view in assigned.items() if view.committed is not None}

    async def publish(self, record: Record, sequence: int) -> bool:
        """Write to the telemetry."""
        control = self._agent.log
        return control is not None and await control.publish(record, sequence=sequence)

    async def write(self, record: Record) -> bool:
        """Write to the coordination log."""
        control = self._agent.log
        return control is not None and await control.write(record)

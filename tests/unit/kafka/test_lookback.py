"""What a leader finds in the control topic that it has not read so far: the assignment, and what is ordered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from loadtrim_agent.kafka.lookback import Lookback
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.ownership_records import AssignmentRecord, LoadRecord, ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from partition_logs import SharedLog

LOAD = LoadRecord(group="ours", member="m", at=0.0, generation=4)


def assignment(
    generation: int, override: ManualOverrideRecord | None = None, group: str = "ours", *, known: bool = True
) -> AssignmentRecord:
    return AssignmentRecord(
        group=group,
        member="m",
        at=0.0,
        generation=generation,
        members={},
        manual_override=override,
        override_known=known,
    )


def order(action: str, group: str = "ours") -> ManualOverrideRecord:
    return ManualOverrideRecord(group=group, member="cli", at=0.0, action=action)


def decision(override: ManualOverrideRecord | None, group: str = "ours") -> DecisionRecord:
    return DecisionRecord(
        group=group, member="m", at=0.0, generation=4, sequence=1, outcome="none", reason="", manual_override=override
    )


async def found_in(coordination: Any, telemetry: Any = None, *, override_only: bool = False) -> Lookback:
    found = Lookback("ours", coordination, telemetry or SharedLog(), decoded)
    await found.run(override_only=override_only)
    assert found.complete
    return found


def decoded(messages: Iterable[Any]) -> list[Record]:
    return [decode(message.value) for message in messages]


@pytest.fixture(params=[2, 100])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtrim_agent.kafka.lookback.CHUNK_RECORDS", request.param)


async def test_the_newest_assignment_of_the_own_group() -> None:
    """With a shared control topic another group's told nothing of delayed JoinGroups, and the own one was not found."""
    log = SharedLog(assignment(3), assignment(4), assignment(9, group="theirs"))
    assert (await found_in(log)).assignment == assignment(4)


async def test_a_group_without_records_has_nothing() -> None:
    found = await found_in(SharedLog(assignment(9, order("hold", "theirs"), "theirs")))
    assert (found.assignment, found.manual_override) == (None, None)


@pytest.mark.usefixtures("chunk")
async def test_the_newest_assignment_may_stand_further_back_than_one_read_reaches() -> None:
    assert (await found_in(SharedLog(assignment(3), assignment(4), *[LOAD] * 5))).assignment == assignment(4)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(
    ("records", "action"),
    [
        ([assignment(4, order("resume")), LOAD, LOAD], "resume"),
        ([assignment(4), order("hold"), LOAD, LOAD], "hold"),
        ([assignment(4), order("resume"), LOAD, order("hold")], "hold"),
        ([assignment(4), LOAD, order("resume"), order("hold"), LOAD, order("resume", "theirs")], "hold"),
        ([order("resume"), order("hold")], "hold"),
    ],
)
async def test_what_the_command_line_wants(records: list[Record], action: str) -> None:
    """A newcomer that leads knows no other place of it. The last one: nobody was there when it was said."""
    override = (await found_in(SharedLog(*records))).manual_override
    assert override is not None
    assert override.action == action


@pytest.mark.parametrize(
    ("records", "action"),
    [
        ([LOAD], "hold"),
        ([LOAD, order("resume")], "resume"),
        ([order("resume"), LOAD, LOAD, LOAD], "resume"),
        ([assignment(4), LOAD], None),
    ],
)
async def test_the_last_decision_repeats_it_where_the_assignment_stands_too_far_back(
    monkeypatch: pytest.MonkeyPatch, records: list[Record], action: str | None
) -> None:
    monkeypatch.setattr("loadtrim_agent.kafka.lookback.CHUNK_RECORDS", 2)
    telemetry = SharedLog(decision(order("resume")), decision(order("hold")), decision(None, "theirs"))
    override = (await found_in(SharedLog(LOAD, LOAD, *records), telemetry)).manual_override
    assert (override.action if override is not None else None) == action


async def test_the_decisions_are_read_once_and_only_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtrim_agent.kafka.lookback.CHUNK_RECORDS", 1)
    telemetry = SharedLog(decision(order("hold")))
    await found_in(SharedLog(LOAD, assignment(4)), telemetry)
    assert telemetry.reads == 0
    assert (await found_in(SharedLog(*[LOAD] * 3), telemetry)).manual_override == order("hold")
    assert telemetry.reads == 1


async def test_telemetry_that_cannot_be_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(SharedLog):
        async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Any:
            raise TimeoutError

    monkeypatch.setattr("loadtrim_agent.kafka.lookback.CHUNK_RECORDS", 1)
    found = await found_in(SharedLog(assignment(4), LOAD), Unreachable(decision(order("hold"))))
    assert found.assignment == assignment(4)


async def test_what_was_found_when_the_time_is_over_counts() -> None:
    class Slow(SharedLog):
        async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Any:
            if self.reads:
                raise TimeoutError
            return await super().read(position, wait_seconds=wait_seconds, timeout=timeout)

    found = Lookback("ours", Slow(*[LOAD] * 2_000, order("hold")), SharedLog(), decoded)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        await found.run(override_only=False)
    assert (found.assignment, found.manual_override) == (None, order("hold"))
    assert not found.complete


@pytest.mark.usefixtures("chunk")
async def test_an_assignment_of_a_leader_that_knew_of_no_order_says_nothing_of_it() -> None:
    """Its look at the log had failed; the order that stands before it is not taken back by that."""
    unknowing = assignment(5, known=False)
    found = await found_in(SharedLog(order("hold"), assignment(4, order("hold")), LOAD, unknowing, LOAD))
    assert (found.assignment, found.manual_override) == (unknowing, order("hold"))
    found = await found_in(SharedLog(assignment(4, order("hold")), LOAD, LOAD, unknowing, LOAD))
    assert (found.assignment, found.manual_override) == (unknowing, order("hold"))


async def test_one_that_is_alone_looks_back_to_the_last_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was ordered before that is in it; what was ordered since, with nobody there, stands behind it in the log."""
    monkeypatch.setattr("loadtrim_agent.kafka.lookback.CHUNK_RECORDS", 2)
    telemetry = SharedLog(msgspec.structs.replace(decision(order("hold")), at=1_000.0))
    loads = [msgspec.structs.replace(LOAD, at=float(at)) for at in range(0, 1_000, 10)]
    log = SharedLog(assignment(4), *loads)
    assert (await found_in(log, telemetry, override_only=True)).manual_override == order("hold")
    assert log.reads < 10
    theirs = [msgspec.structs.replace(LOAD, group="theirs", at=float(at)) for at in range(1_001, 1_020)]
    later = SharedLog(assignment(4), *loads, msgspec.structs.replace(order("resume"), at=1_001.0), *theirs)
    assert (await found_in(later, telemetry, override_only=True)).manual_override.action == "resume"  # type: ignore[union-attr]

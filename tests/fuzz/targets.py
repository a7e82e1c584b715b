"""What the records are thrown at: the decoders, a member's machine, a leader's planner, a program that reads along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from loadtrim.cli.text import status_lines
from loadtrim.observer.group import GroupObserver
from loadtrim_agent.common.local_week import LocalWeek
from loadtrim_agent.kafka.consumer_protocol import decode_answer, decode_member
from loadtrim_agent.kafka.control_log import ControlLog
from loadtrim_agent.observability.text import decision_lines
from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import GroupState, PlanConfig
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import LOADTRIM, Code, GroupConfig
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.wire.baseline_records import Baselines
from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import MALFORMED, TELEMETRY, UnreadableRecord
from loadtrim_agent.wire.ownership_records import AssignmentRecord, MemberEntry
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord
from unit.planning.virtual_group import TOPIC, Fleet, even

from .inputs import Live, make_baseline, make_record

__all__ = ["Decoders", "Leader", "Member", "Reader"]

GROUP = "payments-service"
STEPS_MAX = 10_000
"""Commands that one record may cause, answers to them included."""


class Decoders:
    """The control log's own way to a record, and what reads baselines and the bytes of the group protocol."""

    def __init__(self) -> None:
        self.unreadable = 0
        """Count of the agent's own counter of records that it cannot read."""
        reader: Any = SimpleNamespace(unreadable=self._count, feed=lambda *_: None)
        self._log = ControlLog({"bootstrap_servers": "localhost:1"}, "t", reader, reader)
        self._baselines = Baselines(GROUP, LocalWeek().slots)

    def _count(self) -> None:
        self.unreadable += 1

    def record(self, data: bytes) -> tuple[Record | None, str]:
        """Return the record, or none and the reason."""
        before = self.unreadable
        record = self._log._decode(data)
        assert (record is None) == (self.unreadable == before + 1), "what is refused is counted, and nothing else"
        if record is not None:
            assert decode(encode(record)) == record
            return record, ""
        try:
            decode(data)
        except UnreadableRecord as error:
            return None, reason_of(str(error))
        raise AssertionError("refused once and read the next time")

    def baseline(self, rng: Random, live: Live) -> str:
        """Apply a record of the baseline topic and look ahead by it; return the reason why it is refused."""
        _, value = make_baseline(rng, live)
        _, junk = make_baseline(rng, live)
        keys = (f'["{GROUP}","{live.topic}",null]'.encode(), f'["{GROUP}",null,null]'.encode(), junk)
        try:
            self._baselines.apply(rng.choice(keys), value)
        except UnreadableRecord as error:
            return reason_of(str(error))
        finally:
            for curve in self._baselines.curves(live.now).values():
                assert all(0.0 <= rate < 1e30 for rate in curve.rates)
        return ""

    def group_protocol(self, rng: Random, live: Live) -> str:
        """Read what another client may join with, and what a leader may answer."""
        start = rng.choice((b"", b"\x00\x01", b"\x00\x01\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00"))
        data = start + make_record(rng, live)[1]
        decode_member("m", data)
        try:
            decode_answer(data, LOADTRIM)
        except MALFORMED as error:
            return type(error).__name__
        return ""


class Member:
    """A machine whose every command is answered at once, as by a healthy broker and quick user code."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.counted: Counter[str] = Counter()
        self.generations = 0
        self._now = 100.0
        self._offset = 0
        self._machine = Machine(GroupConfig(group=GROUP, topics=(live.topic,)), wall_offset=live.now - self._now)
        self._feed(e.TopicsEvent, partitions={live.topic: live.partitions})
        self._feed(e.StartEvent)
        assert self._machine.snapshot().stable

    def read(self, record: Record) -> None:
        """The log's next record, a hundredth of a second later."""
        self._now += 0.01
        self._live.generation = self._machine.snapshot().generation
        self._log(record)
        self._feed(e.TickEvent)
        self._feed(e.HeartbeatAnsweredEvent, sent_at=self._now, member=self._machine.snapshot().member,
                   generation=self._live.generation, code=Code.NONE)  # fmt: skip

    def check(self) -> None:
        """It is in a generation and owns something, or becomes so soon."""
        for _ in range(200):
            if self._machine.snapshot().stable and self._machine.snapshot().settled and self._machine.log_works:
                return
            self._now += 0.1
            self._feed(e.TickEvent)
        raise AssertionError(f"starved: {self._machine.snapshot().phase}, {self._machine.snapshot().assigned}")

    def _log(self, record: Record) -> None:
        self._offset += 1
        self._feed(e.LogReadEvent, offset=self._offset - 1, record=record)

    def _feed(self, kind: type[e.Event], **fields: Any) -> None:
        pending = [kind(now=self._now, **fields)]
        for _ in range(STEPS_MAX):
            if not pending:
                return
            for command in self._machine.handle(pending.pop(0)):
                pending += self._answers(command)
        raise AssertionError(f"{STEPS_MAX} steps after {kind.__name__}")

    def _answers(self, command: c.Command) -> list[e.Event]:
        now, machine, live = self._now, self._machine, self._live
        rebalance = machine.membership.rebalance
        match command:
            case c.CountCommand():
                self.counted[command.what.label] += 1
            case c.FindCoordinatorCommand():
                return [e.CoordinatorFoundEvent(now=now)]
            case c.SendJoinCommand() if not command.member:
                return [self._joined(Code.MEMBER_ID_REQUIRED)]
            case c.SendJoinCommand():
                self._owned = command.owned
                return [self._joined(Code.NONE)]
            case c.SendSyncCommand():
                answer = e.GroupAnswer(assignment=self._assignment(command))
                return [e.SyncAnsweredEvent(now=now, sent_at=now, attempt=rebalance.attempt,
                                            generation=command.generation, code=Code.NONE, answer=answer)]  # fmt: skip
            case c.SendHeartbeatCommand():
                return [e.HeartbeatAnsweredEvent(now=now, sent_at=now, member=command.member,
                                                 generation=command.generation, code=Code.NONE)]  # fmt: skip
            case c.SendCommitCommand():
                codes = dict.fromkeys(command.offsets, int(Code.NONE))
                return [e.CommitAnsweredEvent(now=now, commit=command.commit, member=command.member,
                                              generation=command.generation, codes=codes)]  # fmt: skip
            case c.FetchCommittedCommand():
                offsets = dict.fromkeys(command.partitions, 5)
                return [e.CommittedFetchedEvent(now=now, fetch=command.fetch, code=0, offsets=offsets)]
            case c.OpenCommand():
                return [e.OpenedEvent(now=now, partition=command.partition, acquisition_id=command.acquisition_id,
                                      position=command.offset or 0)]  # fmt: skip
            case c.AwaitIdlePointCommand():
                return [e.IdlePointEvent(now=now, partition=command.partition, acquisition_id=command.acquisition_id,
                                         done=None, busy=False)]  # fmt: skip
            case c.StopCommand():
                return [e.DrainedEvent(now=now, partition=command.partition, acquisition_id=command.acquisition_id,
                                       done=None)]  # fmt: skip
            case c.GatherCommitsCommand():
                return [e.CommitWantedEvent(now=now, offsets={})]
            case c.FetchTopicsCommand():
                return [e.TopicsEvent(now=now, partitions={live.topic: live.partitions})]
            case c.ReadAssignmentCommand():
                return [e.AssignmentFoundEvent(now=now, assignment=None)]
            case c.AppendCommand():
                self._offset += 1
                at = self._offset - 1
                return [e.LogReadEvent(now=now, offset=at, record=command.record),
                        e.AppendedEvent(now=now, append=command.append, offset=at),
                        e.LogPositionEvent(now=now, position=at + 1)]  # fmt: skip
        return []

    def _joined(self, code: Code) -> e.Event:
        self.generations += code == Code.NONE
        return e.JoinAnsweredEvent(
            now=self._now, sent_at=self._now, attempt=self._machine.membership.rebalance.attempt, code=int(code),
            member=self._live.members[0], generation=self.generations, protocol=LOADTRIM, leader=self._live.members[1],
        )  # fmt: skip

    def _assignment(self, command: c.SendSyncCommand) -> AssignmentRecord:
        """This member keeps what it claims and gets what nobody owns; the others get the rest."""
        live, attempt = self._live, self._machine.membership.rebalance.attempt
        mine = sorted({p.partition for p in self._owned} | set(range(0, live.partitions, 2)))
        rest = [index for index in range(live.partitions) if index not in mine]
        owns = {live.members[0]: mine, live.members[1]: rest}
        members = {
            m: MemberEntry(attempt=attempt, topics=(live.topic,), owns=((live.topic, tuple(owns.get(m, ()))),))
            for m in live.members
        }
        return AssignmentRecord(group=GROUP, member=live.members[1], at=live.now, generation=command.generation,
                                members=members)  # fmt: skip


class Leader:
    """A planner that is told of a healthy group each second, and of everything else in between."""

    MAX_REPLICAS = 6

    def __init__(self, policy: str = "objective") -> None:
        self._config = PlanConfig(group=GROUP, max_replicas=self.MAX_REPLICAS, policy=policy)
        self._fleet = Fleet(self._config, even(8, 600.0), members=3)
        self._expected = Baselines(GROUP, LocalWeek().slots)
        self.counted: Counter[str] = Counter()
        self.decisions = 0
        self.broken: Counter[str] = Counter()
        self.wanted_max = 0
        self._left_out: Counter[str] = Counter()

    @property
    def live(self) -> Live:
        """Names and times that this group believes."""
        return Live(GROUP, tuple(sorted(self._fleet.members)), TOPIC, len(self._fleet.partitions), self._fleet.now)

    def hear(self, record: Record) -> None:
        """Take a report or a decision in, as the leader loop does."""
        if record.group != GROUP:
            self.counted["another group"] += 1
        elif isinstance(record, ReportRecord):
            self._guarded("observe", self._fleet.planner.observe, record, self._fleet.now)
        elif isinstance(record, DecisionRecord):
            self._guarded("remember", self._fleet.planner.remember, record)
        else:
            self.counted["not telemetry"] += 1
        assert record.lands_on == TELEMETRY or not isinstance(record, ReportRecord)

    def expect(self, rng: Random) -> None:
        """Take a baseline in."""
        try:
            self._expected.apply(f'["{GROUP}","{TOPIC}",null]'.encode(), make_baseline(rng, self.live)[1])
        except UnreadableRecord:
            self.counted["baseline refused"] += 1

    def second(self, rng: Random) -> None:
        """A second of the group, a decision, and what would be asked of the orchestrator. Members come and go."""
        fleet = self._fleet
        fleet.tick()
        if rng.random() < 0.02 and len(fleet.members) < self.MAX_REPLICAS:
            fleet.join()
        elif rng.random() < 0.02 and len(fleet.members) > 2:
            gone = max(fleet.members)
            fleet.remove(gone)
            for partition, owner in fleet.owners.items():
                fleet.owners[partition] = owner or min(fleet.members)
        self._guarded("decide", self._decide)
        now = fleet.planner.history.left_out
        self.counted += now - self._left_out
        self._left_out = now.copy()
        fleet.reports.clear()
        fleet.history.clear()

    def _decide(self) -> None:
        fleet = self._fleet
        state: GroupState = _with_expected(fleet.state(), self._expected, fleet.now)
        decision = fleet.planner.decide(fleet.now, state)
        assert decode(encode(decision)) == decision, "the next leader can read it"
        request = scale_request(decision, state, self._config)
        assert 1 <= request.replicas <= max(self.MAX_REPLICAS, len(fleet.members)), request
        self.wanted_max = max(self.wanted_max, request.replicas)
        self.decisions += 1
        self.counted["decided"] += decision.outcome != "hold"

    def _guarded(self, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = f"{where.tb_frame.f_code.co_filename.rpartition('/')[2]}:{where.tb_lineno}" if where else "?"
            self.broken[f"{what}: {type(error).__name__} at {place}"] += 1
            if what == "decide":  # as the leader loop: a new planner, without what was reported
                self._fleet.planner = make_planner(self._config)
                self._left_out = Counter()


def _with_expected(state: GroupState, expected: Baselines, now: float) -> GroupState:
    return replace(state, expected=expected.curves(now), startup_expected_seconds=expected.startup_seconds)


class Reader:
    """A program that reads along and shows the group: ``loadtrim status``, ``explain`` and ``up``."""

    def __init__(self) -> None:
        self._view = GroupObserver(GROUP)

    def hear(self, record: Record, now: float) -> None:
        """Fold it in, and tell it in words."""
        self._view.apply(record, now)
        lines = decision_lines(record, self._view.names) if isinstance(record, DecisionRecord) else []
        assert all(line.isprintable() for line in lines)

    def show(self, now: float) -> None:
        """What ``loadtrim status`` prints."""
        assert all(
            line.replace("\n", "").isprintable() for line in status_lines(self._view.state(now), partitions=True)
        )


def reason_of(error: str) -> str:
    """The kind of a decoder's refusal."""
    kinds = (
        ("recursion", "nested too deeply"),
        ("missing required field", "field missing"),
        ("Invalid value", "unknown kind"),
        ("of length <=", "too long"),
        ("out of range", "number out of range"),
        (" >= ", "number out of range"),
        (" <= ", "number out of range"),
        ("got `", "wrong type"),
        ("Expected `str`", "wrong type"),
        ("at least length", "too short"),
        ("malformed", "no JSON"),
        ("truncated", "no JSON"),
        ("UTF-8", "no JSON"),
        ("utf-8", "no JSON"),
        ("trailing", "no JSON"),
        ("surrogate", "no JSON"),
    )
    return next((kind for sign, kind in kinds if sign in error), "does not fit together")

"""The protocol under schedules that nobody thought of: I1 to I4 and I6 after every step, I5 after healing.

``LOADTRIM_SIM_SEEDS=5000 pytest tests/property/test_group_protocol.py`` runs that many seeds instead of a few;
``LOADTRIM_SIM_FIRST`` is the first of them. A failure names its seed and the one command that replays it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from loadtrim_agent.wire.ownership_records import AssignmentRecord, LoadRecord, MovePlan, ReleaseRecord
from sim.chaos import simulate
from sim.controllog import AppendFate
from sim.coordinator import HeartbeatRequest, JoinRequest, LeaveRequest, SyncRequest
from sim.member import SimMember
from sim.network import Fate
from sim.options import GroupOptions, SimOptions
from sim.script import Script
from sim.world import HEALED_SECONDS

FEW = 24
SEEDS = int(os.environ.get("LOADTRIM_SIM_SEEDS", FEW))
FIRST = int(os.environ.get("LOADTRIM_SIM_FIRST", 0))
AT_ONCE = 12
"""Seeds per test: a failure costs the rest of them."""
FAILED_ONCE = (
    202617568,
    202618307,
    202624130,
    228180593,
    228181891,
    228183685,
    1603407806,
    1006519870,
    41000179,
    51001324,
    51003501,
    3732011415,
    405332933,
    405332842,
    880260,
    880481,
    502977523,
    502978169,
    502978510,
    1384435967,
    429377792,
)
"""Each has found a fault of the product or of what judges it. Those with 228 first: what an administrator had removed
was known again to a broker that took over, and the member that read of its removal after that was blamed for it. With
two of 50297 a JoinGroup was refused for what it did not offer yet, and the start failed; with the third a newcomer that
held nothing was blamed for its lease. With 1384435967 a simulated log that had failed was never told to be back. With
the last a member without the log was refused for ever by a coordinator that had taken over."""

short = st.floats(0.0, 2.0)
"""Seconds, below most time-outs."""
long = st.floats(0.0, 15.0)
"""Seconds, beyond the session and the rebalance time-out."""
which = st.integers(0, 5)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FIRST + SEEDS)):
        play(seed)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seeds_that_failed_once(seed: int) -> None:
    play(seed)


def play(seed: int) -> None:
    try:
        simulate(seed)
    except Exception as error:
        pytest.fail(f"seed {seed}: {error}\nreplay: PYTHONPATH=agent:tests python -m sim {seed}")


@pytest.mark.slow
def test_same_seed_same_run() -> None:
    assert simulate(7) == simulate(7)
    assert simulate(7) != simulate(8)


@settings(max_examples=20 if SEEDS <= FEW else SEEDS // 10, deadline=None)
@given(
    members=st.integers(2, 4),
    victim=which,
    seconds=st.floats(0.0, 3.0),
    timing=st.sampled_from(((3.0, 0.3), (3.0, 1.0), (10.0, 1.0), (10.0, 3.0), (45.0, 3.0))),
)
def test_a_crash_is_over_within_the_session_timeout_plus_a_second(
    members: int, victim: int, seconds: float, timing: tuple[float, float]
) -> None:
    session, heartbeat = timing
    group = GroupOptions(session_timeout_seconds=session, heartbeat_interval_seconds=heartbeat)
    world = Script(topics=(("orders", 5),), group=group)
    world.members_in(members)
    world.run(seconds)
    world.alive[victim % members].crash()
    world.run(session + HEALED_SECONDS)
    world.check_healed()


class GroupSchedules(RuleBasedStateMachine):
    """Hypothesis chooses what happens and makes the schedule that fails as short as it can."""

    world: Script

    @initialize(
        partitions=st.integers(1, 3),
        members=st.integers(1, 3),
        inline=st.booleans(),
        auto_commit=st.booleans(),
        latest=st.booleans(),
    )
    def start(self, partitions: int, members: int, inline: bool, auto_commit: bool, latest: bool) -> None:
        group = GroupOptions(
            session_timeout_seconds=4.0,
            auto_commit=auto_commit,
            auto_commit_seconds=2.0,
            inline_limit_bytes=400_000 if inline else 0,
            reset_latest=latest,
        )
        self.world = Script(topics=(("orders", partitions),), group=group)
        for _ in range(members):
            self.world.join()
        self.world.run(2.0)

    def some(self, index: int) -> SimMember | None:
        alive = self.world.alive
        return alive[index % len(alive)] if alive else None

    @rule(seconds=short)
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(partition=which, count=st.integers(1, 5))
    def produce(self, partition: int, count: int) -> None:
        partitions = sorted(self.world.data)
        self.world.produce(partitions[partition % len(partitions)], count)

    @rule(source=which, partition=which, to=which)
    def move(self, source: int, partition: int, to: int) -> None:
        member, target = self.some(source), self.some(to)
        if member is not None and target is not None and member.machine.snapshot().assigned:
            assigned = sorted(member.machine.snapshot().assigned)
            member.move(assigned[partition % len(assigned)], target.member)

    @rule(source=which, partition=which, to=which)
    def plan(self, source: int, partition: int, to: int) -> None:
        member, target = self.some(source), self.some(to)
        leader = next((m for m in self.world.alive if m.machine.snapshot().is_leader), None)
        if leader is not None and member is not None and target is not None and member.machine.snapshot().assigned:
            assigned = sorted(member.machine.snapshot().assigned)
            topic, index = assigned[partition % len(assigned)]
            move = MovePlan(topic=topic, partition=index, source=member.member, target=target.member)
            leader.write_plan((move,))

    @precondition(lambda self: len(self.world.alive) < 4)
    @rule()
    def join(self) -> None:
        self.world.join()

    @rule(index=which, release=st.booleans(), come_back=st.booleans())
    def leave(self, index: int, release: bool, come_back: bool) -> None:
        member = self.some(index)
        if member is not None and len(self.world.alive) > 1:
            member.leave(release=release, come_back=come_back)

    @rule(index=which)
    def crash(self, index: int) -> None:
        member = self.some(index)
        if member is not None:
            member.crash()

    @rule(index=which, seconds=long, user_too=st.booleans())
    def pause(self, index: int, seconds: float, user_too: bool) -> None:
        member = self.some(index)
        if member is not None and not (member.frozen or member.stalled):
            (member.freeze if user_too else member.stall)(seconds)

    @precondition(lambda self: self.world.coordinator.up)
    @rule(seconds=short, silent=st.booleans())
    def fail_over(self, seconds: float, silent: bool) -> None:
        self.world.coordinator.fail(silent=silent)
        self.world.scheduler.after(seconds, self.world.take_over)

    @rule(index=which, kind=st.sampled_from((JoinRequest, SyncRequest, HeartbeatRequest, LeaveRequest)), data=st.data())
    def spoil_request(self, index: int, kind: type, data: st.DataObject) -> None:
        fates = (
            Fate(request_seconds=data.draw(short)),
            Fate(answer_seconds=data.draw(short)),
            Fate(arrives=False),
            Fate(answered=False),
            Fate(arrives=False, breaks_seconds=0.1),
            Fate(answered=False, breaks_seconds=0.1),
            Fate(breaks_seconds=0.1, late_seconds=data.draw(long)),
            Fate(copy_seconds=data.draw(long)),
        )
        member = self.some(index)
        if member is not None:
            self.world.next_request(member, kind, data.draw(st.sampled_from(fates)))

    @rule(
        index=which, kind=st.sampled_from((ReleaseRecord, ReleaseRecord, AssignmentRecord, LoadRecord)), data=st.data()
    )
    def spoil_append(self, index: int, kind: type, data: st.DataObject) -> None:
        fates = (
            AppendFate(lands=False, acknowledged=False),
            AppendFate(acknowledged=False),
            AppendFate(land_seconds=data.draw(long), acknowledged=False),
            AppendFate(copy_seconds=data.draw(long)),
            AppendFate(vanishes=kind is ReleaseRecord),
        )
        member = self.some(index)
        if member is not None:
            self.world.next_append(member, kind, data.draw(st.sampled_from(fates)))

    @rule(index=which, seconds=short, failed=st.booleans())
    def delay_log(self, index: int, seconds: float, failed: bool) -> None:
        member = self.some(index)
        if member is not None and failed:
            member.fail_log(seconds)
        elif member is not None:
            member.reader.block(self.world.scheduler.now + seconds)

    @rule(index=which, records=st.integers(0, 4))
    def lose_records(self, index: int, records: int) -> None:
        member = self.some(index)
        if records:
            self.world.log.truncate(records)
        elif member is not None:
            member.reader.skip_to_end()

    @precondition(lambda self: self.world.topics["orders"] < 5)
    @rule()
    def enlarge(self) -> None:
        self.world.enlarge("orders", self.world.topics["orders"] + 1)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.forget_fates()
            self.world.heal()
            self.world.run(SimOptions().group.drain_seconds + 1.0)
            self.world.check_healed()


GroupSchedules.TestCase.settings = settings(
    max_examples=25 if SEEDS <= FEW else SEEDS // 10,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    print_blob=True,
)
TestGroupSchedules = GroupSchedules.TestCase

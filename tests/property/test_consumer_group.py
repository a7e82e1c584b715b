"""The model of a group whose partitions the broker assigns (``tests/whole/group.py``) behaves as Kafka 4.1 does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.consumer_protocol import decode_answer, encode_answer, encode_subscription
from loadtrim_agent.protocol.events import GroupAnswer
from loadtrim_agent.protocol.group_config import LOADTRIM, Code
from sim.coordinator import CommitRequest, GroupState, HeartbeatRequest, JoinRequest, LeaveRequest, SyncRequest
from whole.consumer_group import SESSION_SECONDS, STALE_MEMBER_EPOCH
from whole.group import GROUP_ID_NOT_FOUND, GroupModel
from whole.kernel import Kernel

TOPICS = ("load",)
PARTITIONS = frozenset(Partition("load", index) for index in range(6))
P0 = Partition("load", 0)


class Harness:
    """One group, with members that wait for nobody."""

    def __init__(self) -> None:
        self.kernel = Kernel(0)
        self.group = GroupModel(self.kernel, {"load": len(PARTITIONS)})
        self._attempts = 0

    def ask(self, request: Any) -> Any:
        """Return the answer; a list without one where it is kept waiting."""
        answers: list[Any] = []
        self.group.serve(request, answers.append)
        return answers[0] if answers else answers

    def join(self, member: str = "", *protocols: str, owned: frozenset[Partition] = frozenset()) -> Any:
        self._attempts += 1
        metadata = encode_subscription(TOPICS, owned, self._attempts)
        offered = protocols or (LOADTRIM, "range")
        return self.ask(JoinRequest(member, offered, tuple((name, metadata) for name in offered), 6.0, 12.0))

    def classic(self, *protocols: str, assigned: GroupAnswer | None = None) -> str:
        """Have a classic member join a group of its own, and assign to itself."""
        member = self.join("", *protocols).member
        told = self.join(member, *protocols)
        answer = encode_answer(assigned or GroupAnswer(partitions=tuple(PARTITIONS)), told.protocol)
        assert self.ask(SyncRequest(member, told.generation, {member: answer})).code == Code.NONE
        return str(member)

    def heartbeat(self, member: str, epoch: int = 0, *owned: Partition) -> Any:
        return self.group.heartbeat(member, epoch, owned, TOPICS)

    def beat(self, member: str, generation: int) -> int:
        return int(self.ask(HeartbeatRequest(member, generation)))

    def given(self, member: str, generation: int) -> frozenset[Partition]:
        told = self.ask(SyncRequest(member, generation, {}))
        assert told.code == Code.NONE
        return frozenset(decode_answer(told.answer, LOADTRIM).partitions)


def test_a_group_whose_assignment_has_user_data_takes_no_such_member() -> None:
    h = Harness()
    h.classic(LOADTRIM, "range")
    assert h.heartbeat("k").code == GROUP_ID_NOT_FOUND
    assert h.group.assigning is None


def test_a_refused_member_interrupts_the_rebalance_that_goes_on() -> None:
    """Kafka answers whoever waits before it looks at the assignments."""
    h = Harness()
    h.classic(LOADTRIM, "range")
    h.join()  # given an id, and waited for from now on
    answers: list[Any] = []
    parked = JoinRequest("m002", ("range",), (("range", encode_subscription(TOPICS, (), 1)),), 6.0, 12.0)
    h.group.serve(parked, answers.append)
    assert (h.group.state, answers) == (GroupState.PREPARING, [])
    h.heartbeat("k")
    assert [answer.code for answer in answers] == [Code.REBALANCE_IN_PROGRESS]


def test_a_mixed_group_is_converted_and_converted_back() -> None:
    h = Harness()
    mine = h.classic("range")
    generation = h.group.generation
    theirs = h.heartbeat("k")
    assert (theirs.epoch, theirs.assigned) == (generation + 1, frozenset()), "nothing is free yet"
    assert h.beat(mine, generation) == Code.REBALANCE_IN_PROGRESS

    kept = h.join(mine, "range", owned=PARTITIONS)
    assert (kept.code, kept.leader, kept.protocol) == (Code.NONE, "", "range")
    assert kept.generation == generation, "it has not put down yet what it must"
    half = h.given(mine, generation)
    assert (len(half), half < PARTITIONS) == (3, True)
    assert h.heartbeat("k", theirs.epoch).assigned == frozenset(), "and nobody else is given that"

    moved = h.join(mine, "range", owned=half)
    assert moved.generation == theirs.epoch
    assert h.heartbeat("k", theirs.epoch).assigned == PARTITIONS - half
    assert h.beat(mine, moved.generation) == Code.NONE

    h.group.leave("k")
    assert h.group.assigning is None
    assert (h.group.state, h.group.generation) == (GroupState.PREPARING, moved.generation)
    assert h.beat(mine, moved.generation) == Code.REBALANCE_IN_PROGRESS
    assert h.join(mine, "range").leader == mine


def test_commits_are_fenced_by_the_epoch_of_their_member() -> None:
    h = Harness()
    epoch = h.heartbeat("k").epoch
    mine = h.join("somebody").member
    assert mine == "somebody", "whoever comes with an id is known by it"
    assert h.group.commit("k", epoch + 1, {P0: 1}) == {P0: STALE_MEMBER_EPOCH}
    assert h.ask(CommitRequest(mine, epoch, {P0: 1})) == {P0: Code.ILLEGAL_GENERATION}
    assert h.ask(CommitRequest("nobody", epoch, {P0: 1})) == {P0: Code.UNKNOWN_MEMBER_ID}
    assert h.group.commit("k", epoch, {P0: 1}) == {P0: Code.NONE}
    assert h.group.offsets == {P0: 1}


def test_a_member_that_dies_is_expelled_after_its_session() -> None:
    h = Harness()
    epoch = h.heartbeat("k").epoch
    h.kernel.scheduler.step(h.kernel.now + SESSION_SECONDS + 1)
    assert h.heartbeat("k", epoch).code == Code.UNKNOWN_MEMBER_ID
    assert h.join().code == Code.MEMBER_ID_REQUIRED
    assert h.group.assigning is None, "what is empty becomes a classic group,"
    assert h.group.generation == 0, "and generations begin anew"


def test_a_group_without_a_protocol_in_common_with_a_classic_member_refuses_it() -> None:
    h = Harness()
    h.heartbeat("k")
    assert h.join("a", "range").code == Code.NONE
    assert h.join("b", "roundrobin").code == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("seed", range(30))
def test_nobody_is_given_what_another_member_has_and_all_is_given_in_the_end(seed: int) -> None:
    """Members of both kinds come and go, and put down what they are told to at times of their own."""
    rng = random.Random(seed)
    h = Harness()
    theirs: dict[str, tuple[int, frozenset[Partition]]] = {"k0": (0, frozenset())}
    ours: dict[str, tuple[int, frozenset[Partition]]] = {}

    def look() -> None:
        held = [has for _, has in (*theirs.values(), *ours.values())]
        assert sum(map(len, held)) == len(frozenset[Partition]().union(*held)), "two have the same partition"

    def turn(name: str) -> None:
        if name in theirs:
            epoch, has = theirs[name]
            told = h.heartbeat(name, epoch, *has)
            assert told.code == Code.NONE
            theirs[name] = (told.epoch, told.assigned)
        else:
            generation, has = ours[name]
            if generation >= 0 and h.beat(name, generation) == Code.NONE:
                return
            ours[name] = (generation, frozenset())  # eager: everything is put down first
            told = h.join(name)
            ours[name] = (told.generation, h.given(name, told.generation))
        look()

    turn("k0")
    for step in range(60):
        names = sorted({*theirs, *ours})
        if step < 40 and rng.random() < 0.1:
            ours[f"m{step}"] = (-1, frozenset())
        elif step < 40 and rng.random() < 0.1:
            theirs[f"k{step}"] = (0, frozenset())
            turn(f"k{step}")
        elif step < 40 and rng.random() < 0.1 and len(theirs) > 1:
            name = rng.choice(sorted(theirs))
            del theirs[name]
            h.group.leave(name)
        elif step < 40 and rng.random() < 0.1 and ours:
            name = rng.choice(sorted(ours))
            del ours[name]
            h.ask(LeaveRequest(name))
        else:
            turn(rng.choice(names))
    for _ in range(6):
        for name in sorted({*theirs, *ours}):
            turn(name)
    shares = [len(has) for _, has in (*theirs.values(), *ours.values())]
    assert (sum(shares), max(shares) - min(shares) <= 1) == (len(PARTITIONS), True)


def test_offsets_in_a_transaction_are_refused_less_often_than_others() -> None:
    """As ``ClassicGroup.validateOffsetCommit`` of Kafka 4.1 says; what else keeps them right is the product's to do."""
    group = Harness().group
    answers: list[Any] = []
    group.serve(JoinRequest("", (LOADTRIM,), ((LOADTRIM, b""),), 6.0, 12.0), answers.append)
    member = answers[-1].member
    group.serve(JoinRequest(member, (LOADTRIM,), ((LOADTRIM, b""),), 6.0, 12.0), answers.append)
    generation = answers[-1].generation
    assert group.state is GroupState.COMPLETING
    assert group.refusal(member, generation) == Code.REBALANCE_IN_PROGRESS
    assert group.refusal(member, generation, transactional=True) == Code.NONE
    assert group.refusal("", -1) == Code.UNKNOWN_MEMBER_ID
    assert group.refusal("", -1, transactional=True) == Code.NONE, "nothing fences them"
    assert group.refusal(member, generation - 1, transactional=True) == Code.ILLEGAL_GENERATION
    assert group.refusal("somebody", generation, transactional=True) == Code.UNKNOWN_MEMBER_ID

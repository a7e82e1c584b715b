"""The leader's map (rule 7) and a mixed group's assignment, as pure functions."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.assignment import answers_of, assign_standard, make_assignment
from loadtrim_agent.protocol.events import GroupAnswer, JoinedMember
from loadtrim_agent.wire.ownership_records import AssignmentRecord, MemberEntry

P = [Partition("orders", index) for index in range(6)]
R0 = Partition("refunds", 0)


def joined(
    member: str, *owned: Partition, topics: tuple[str, ...] = ("orders",), attempt: int | None = 2
) -> JoinedMember:
    return JoinedMember(member=member, topics=topics, owned=owned, attempt=attempt)


def test_claimed_goes_to_the_claimant_and_the_rest_is_spread() -> None:
    made = make_assignment([joined("b", P[0], P[1], P[2]), joined("a")], {"orders": 4})
    assert made.owners == {P[0]: "b", P[1]: "b", P[2]: "b", P[3]: "a"}
    assert (made.contested, made.void) == ((), ())
    assert list(made.entries) == ["a", "b"]
    assert made.entries["b"] == MemberEntry(attempt=2, topics=("orders",), owns=(("orders", (0, 1, 2)),))


def test_claimed_twice_goes_to_nobody() -> None:
    made = make_assignment([joined("a", P[0], P[1]), joined("b", P[1]), joined("c")], {"orders": 2})
    assert made.owners == {P[0]: "a"}
    assert made.contested == (P[1],)


def test_claims_of_what_is_gone_or_not_subscribed_are_void() -> None:
    made = make_assignment([joined("a", P[0], P[5], R0), joined("b", topics=("refunds",))], {"orders": 2, "refunds": 1})
    assert made.void == (("a", P[5]), ("a", R0))
    assert made.owners == {P[0]: "a", P[1]: "a", R0: "b"}


def test_topic_that_is_not_there_has_no_partitions() -> None:
    made = make_assignment([joined("a", R0, topics=("refunds",))], {"refunds": 0})
    assert made.owners == {}
    assert made.void == (("a", R0),)


def test_leaving_members_keep_what_they_claim_and_get_nothing() -> None:
    made = make_assignment([joined("a", P[0]), joined("b")], {"orders": 3}, leaving=frozenset({"a"}))
    assert made.owners == {P[0]: "a", P[1]: "b", P[2]: "b"}


def test_everybody_leaving_leaves_the_rest_unassigned() -> None:
    made = make_assignment([joined("a", P[0])], {"orders": 3}, leaving=frozenset({"a"}))
    assert made.owners == {P[0]: "a"}


def test_weights_spread_the_work_not_the_count() -> None:
    weights = {P[0]: 9.0, P[1]: 1.0, P[2]: 1.0, P[3]: 1.0}
    made = make_assignment([joined("a"), joined("b")], {"orders": 4}, weights=weights)
    assert Counter(made.owners.values()) == {"a": 1, "b": 3}


def test_answers_carry_the_map_or_the_attempts() -> None:
    made = make_assignment([joined("a", P[0]), joined("b", attempt=9)], {"orders": 2})
    assignment = AssignmentRecord(group="g", member="a", at=0.0, generation=3, members=made.entries)
    assert answers_of(assignment, inline=True) == {
        "a": GroupAnswer(partitions=(P[0],), assignment=assignment),
        "b": GroupAnswer(partitions=(P[1],), assignment=assignment),
    }
    assert answers_of(assignment, inline=False) == {
        "a": GroupAnswer(partitions=(P[0],), attempts={"a": 2}),
        "b": GroupAnswer(partitions=(P[1],), attempts={"b": 9}),
    }


def test_mixed_group_deals_out_by_the_shared_protocol() -> None:
    members = [joined("a"), joined("foreign", attempt=None)]
    assert assign_standard("range", members, {"orders": 4}) == {
        "a": GroupAnswer(partitions=(P[0], P[1])),
        "foreign": GroupAnswer(partitions=(P[2], P[3])),
    }
    assert assign_standard("roundrobin", members, {"orders": 4})["a"] == GroupAnswer(partitions=(P[0], P[2]))


def test_mixed_group_in_which_something_is_still_held_moves_nothing() -> None:
    members = [joined("a", P[0], P[1], P[2]), joined("foreign", attempt=None)]
    assert assign_standard("range", members, {"orders": 4}) == {
        "a": GroupAnswer(partitions=(P[0], P[1], P[2])),
        "foreign": GroupAnswer(partitions=(P[3],)),
    }


topic_counts = st.fixed_dictionaries({"orders": st.integers(0, 5), "refunds": st.integers(0, 3)})
owned_partitions = st.lists(st.builds(Partition, st.sampled_from(("orders", "refunds")), st.integers(0, 5)), max_size=5)
subscriptions = st.sampled_from((("orders",), ("refunds",), ("orders", "refunds")))
groups = st.dictionaries(
    st.sampled_from(("m1", "m2", "m3", "m4")), st.tuples(subscriptions, owned_partitions), min_size=1
).map(lambda members: [joined(m, *sorted(set(owned)), topics=topics) for m, (topics, owned) in members.items()])


@given(groups, topic_counts, st.randoms(use_true_random=False))
def test_every_partition_goes_to_somebody_who_may_have_it(
    members: list[JoinedMember], counts: dict[str, int], random: object
) -> None:
    made = make_assignment(members, counts)
    by_name = {m.member: m for m in members}
    claimed = Counter(p for m in members for p in m.owned if p.topic in m.topics and p.partition < counts[p.topic])
    for topic, count in counts.items():
        for index in range(count):
            partition = Partition(topic, index)
            subscribed = any(topic in m.topics for m in members)
            owner = made.owners.get(partition)
            assert (owner is None) == (not subscribed or claimed[partition] > 1)
            if owner is not None:
                assert topic in by_name[owner].topics
                assert claimed[partition] == 0 or partition in by_name[owner].owned
    assert made.contested == tuple(sorted(p for p, times in claimed.items() if times > 1))
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert make_assignment(shuffled, counts) == made

"""The fold of promises: all members that read the same records agree which of them count."""

from __future__ import annotations

import msgspec
import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.protocol.promises import REMEMBERED_MAX, Promises
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.ownership_records import MemberEntry, PromiseRecord
from sim.driver import GROUP

P0, P1, P2 = (Partition("orders", index) for index in range(3))
MEMBERS = {name: MemberEntry(attempt=2, topics=("orders",)) for name in ("a", "b", "c")}
MEMBERS["d"] = MemberEntry(attempt=2, topics=("refunds",))


def owners() -> Ownership:
    return Ownership(7, {P0: "a", P1: "b", P2: "a"})


def promise(source: str = "a", target: str = "c", index: int = 0, turn: int = 0, **fields: object) -> PromiseRecord:
    values: dict[str, object] = {
        "group": GROUP,
        "member": source,
        "at": 1.0,
        "generation": 7,
        "topic": "orders",
        "partition": index,
        "version": 0,
        "source": source,
        "target": target,
        "turn": turn,
        "until": 40,
        "work": 0.2,
    }
    return PromiseRecord(**{**values, **fields})  # type: ignore[arg-type]


def test_of_two_promises_to_one_receiver_the_first_on_the_log_counts() -> None:
    promises = Promises()
    first, second = promise("a"), promise("b", index=1)
    assert promises.apply(first, owners(), MEMBERS)
    assert not promises.apply(second, owners(), MEMBERS), "its writer did not know of the first"
    assert promises.apply(promise("b", index=1, turn=1), owners(), MEMBERS), "now it does"
    assert promises.turn("d", "c") == 2
    assert promises.open().keys() == {P0, P1}


def test_two_promises_of_one_member_fall_together_where_another_was_first() -> None:
    """Their giver knew of neither: seed 3286061334 of the simulation, where the second counted behind the other's."""
    promises = Promises()
    first, second = (promise("a", index=index, turn=promises.turn("a", "c")) for index in (0, 2))
    assert promises.apply(promise("b", index=1), owners(), MEMBERS)
    assert not promises.apply(first, owners(), MEMBERS)
    assert not promises.apply(second, owners(), MEMBERS)
    assert promises.open().keys() == {P1}


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_two_promises_of_one_member_to_one_receiver_both_count_in_any_order(order: tuple[int, int]) -> None:
    promises = Promises()
    promises.apply(promise("b", index=1), owners(), MEMBERS)
    turn = promises.turn("a", "c")
    assert all(promises.apply(promise("a", index=index, turn=turn), owners(), MEMBERS) for index in order)
    assert (promises.turn("a", "c"), promises.turn("b", "c")) == (1, 2)


def test_promises_to_different_receivers_do_not_disturb_each_other() -> None:
    promises = Promises()
    assert promises.apply(promise("a", "b"), owners(), MEMBERS)
    assert promises.apply(promise("a", "c", index=2), owners(), MEMBERS)


@pytest.mark.parametrize(
    "void",
    [
        {"generation": 6},
        {"generation": 8},
        {"version": 1},
        {"source": "b", "member": "b"},
        {"member": "b"},
        {"target": "a"},
        {"target": "stranger"},
        {"target": "d"},
        {"turn": 1},
        {"partition": 9},
        {"topic": "refunds"},
    ],
    ids=str,
)
def test_what_does_not_match_is_void_and_changes_nothing(void: dict[str, object]) -> None:
    promises = Promises()
    assert not promises.apply(promise(**void), owners(), MEMBERS)  # type: ignore[arg-type]
    assert not promises.open()
    assert [promises.turn("", name) for name in "abcd"] == [0, 0, 0, 0]


def test_nothing_counts_where_nothing_moves() -> None:
    assert not Promises().apply(promise(), None, MEMBERS)


def test_what_is_taken_back_is_not_open_any_more_and_the_turn_goes_on() -> None:
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    back = msgspec.structs.replace(promise(), taken_back=True)
    assert promises.apply(back, owners(), MEMBERS)
    assert not promises.open()
    assert not promises.apply(back, owners(), MEMBERS), "once"
    assert promises.turn("b", "c") == 1, "whoever has seen it counts it"


def test_a_late_word_that_an_earlier_promise_is_taken_back_leaves_the_present_one() -> None:
    """Appends of one member may overtake each other: seed 5 of the simulation."""
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    assert promises.apply(promise(taken_back=True), owners(), MEMBERS)
    later = promise(at=2.0)
    assert promises.apply(later, owners(), MEMBERS)
    for earlier in (promise(), promise(at=1.5)):
        assert not promises.apply(msgspec.structs.replace(earlier, taken_back=True), owners(), MEMBERS)
    assert promises.of(P0) is later


def test_until_a_promise_is_taken_back_a_second_of_its_partition_is_void() -> None:
    """Appends of one member may overtake each other: seed 1354436291 of the simulation."""
    promises = Promises()
    assert promises.apply(promise("a", "c"), owners(), MEMBERS)
    assert not promises.apply(promise("a", "b", at=0.5), owners(), MEMBERS)
    assert not promises.apply(promise("a", "b", at=0.5, taken_back=True), owners(), MEMBERS)
    assert promises.of(P0) == promise("a", "c")
    assert promises.turn("", "b") == 0


def test_a_promise_that_was_taken_back_before_it_was_read_never_counts() -> None:
    promises = Promises()
    assert not promises.apply(promise(taken_back=True), owners(), MEMBERS)
    assert not promises.apply(promise(), owners(), MEMBERS)
    assert promises.turn("", "c") == 0
    assert promises.apply(promise(at=2.0), owners(), MEMBERS), "it would have stayed open until the next generation"


def test_a_copy_of_a_promise_that_was_taken_back_never_counts() -> None:
    """An append that is sent again may land twice: seed 2334014072 of the simulation."""
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    promises.apply(promise(taken_back=True), owners(), MEMBERS)
    for _ in range(2):
        assert not promises.apply(promise(), owners(), MEMBERS)


def test_a_copy_of_a_void_promise_never_counts() -> None:
    """Its giver takes nothing back that did not count."""
    promises = Promises()
    promises.apply(promise("a", "c"), owners(), MEMBERS)
    assert not promises.apply(promise("a", "b", at=0.5), owners(), MEMBERS)
    promises.apply(promise("a", "c", taken_back=True), owners(), MEMBERS)
    assert not promises.apply(promise("a", "b", at=0.5), owners(), MEMBERS)


def test_promises_are_remembered_up_to_a_bound() -> None:
    promises = Promises()
    for number in range(REMEMBERED_MAX + 5):
        promises.apply(promise(at=float(number), taken_back=True), owners(), MEMBERS)
    assert len(promises._known) == REMEMBERED_MAX
    assert not promises.apply(promise(at=REMEMBERED_MAX + 4.0), owners(), MEMBERS), "the last ones"


def test_after_a_gap_nothing_counts_until_the_next_generation() -> None:
    """Others count what this member has not read: seed 1354436327 of the simulation."""
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    promises.gap()
    assert not promises.whole
    assert not promises.open()
    assert not promises.apply(promise(index=2), owners(), MEMBERS)
    promises.enter()
    assert promises.apply(promise(index=2), owners(), MEMBERS)


def test_only_the_owner_takes_a_promise_back() -> None:
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    assert not promises.apply(promise(member="b", taken_back=True), owners(), MEMBERS)
    assert not promises.apply(promise(source="b", taken_back=True), owners(), MEMBERS)
    assert promises.open()


def test_a_release_ends_the_promise() -> None:
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    assert promises.released(P0) == promise()
    assert promises.released(P0) is None


def test_a_generation_forgets_all() -> None:
    promises = Promises()
    promises.apply(promise(), owners(), MEMBERS)
    promises.enter()
    assert not promises.open()
    assert promises.turn("", "c") == 0


@pytest.mark.parametrize("field", ["work", "seconds", "turn", "version"])
@pytest.mark.parametrize("value", [-1, 1e300])
def test_figures_that_cannot_be_are_refused(field: str, value: float) -> None:
    written = msgspec.json.decode(encode(promise()))
    with pytest.raises(UnreadableRecord):
        decode(msgspec.json.encode({**written, field: value}))

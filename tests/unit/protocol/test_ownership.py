"""The fold of the log (rule 1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.wire.ownership_records import ReleaseRecord
from sim.driver import release

P0, P1 = Partition("orders", 0), Partition("orders", 1)


@pytest.fixture
def fold() -> Ownership:
    return Ownership(3, {P1: "b", P0: "a"})


def test_seed(fold: Ownership) -> None:
    assert fold.owners() == {P0: "a", P1: "b"}
    assert list(fold.owners()) == [P0, P1]
    assert (fold.owner(P0), fold.version(P0)) == ("a", 0)


def test_partition_of_nobody(fold: Ownership) -> None:
    unknown = Partition("refunds", 0)
    assert (fold.owner(unknown), fold.version(unknown)) == (None, 0)
    assert not fold.apply(release(3, 9, 0, "a", "b"))


def test_release_counts_once(fold: Ownership) -> None:
    assert fold.apply(release(3, 0, 0, "a", "c"))
    assert (fold.owner(P0), fold.version(P0)) == ("c", 1)
    assert not fold.apply(release(3, 0, 0, "a", "c"))


@pytest.mark.parametrize(
    "void",
    [
        release(2, 0, 0, "a", "c"),
        release(4, 0, 0, "a", "c"),
        release(3, 0, 1, "a", "c"),
        release(3, 0, 0, "b", "c"),
    ],
    ids=["older generation", "later generation", "version", "not the owner"],
)
def test_everything_else_is_void(fold: Ownership, void: ReleaseRecord) -> None:
    assert not fold.apply(void)
    assert (fold.owner(P0), fold.version(P0)) == ("a", 0)


releases = st.builds(
    release,
    generation=st.integers(2, 4),
    index=st.integers(0, 1),
    version=st.integers(0, 3),
    source=st.sampled_from("abc"),
    target=st.sampled_from("abc"),
)


@given(st.lists(releases, max_size=30))
def test_copies_of_what_counted_never_count_again(records: list[ReleaseRecord]) -> None:
    fold = Ownership(3, {P0: "a", P1: "b"})
    counted = [record for record in records if fold.apply(record)]
    assert not any(fold.apply(record) for record in counted)
    assert fold.version(P0) + fold.version(P1) == len(counted)

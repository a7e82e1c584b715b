"""What a follower of a run that goes on says of it."""

from __future__ import annotations

from pathlib import Path

from demo.follow import Follower
from unit.examples.stories import MILLISECOND, Story


def test_what_is_unfinished_and_when_a_partition_was_handed_out_last(tmp_path: Path) -> None:
    story = Story(tmp_path / "run")
    story.send_all({0: 2, 1: 1})
    story.sent(1, 1, 5, acknowledged=False)
    story.handed("a", 0, 0, at=10)
    story.done("a", 0, 0, at=12)
    story.handed("b", 0, 1, at=15)
    story.handed("a", 0, 1, at=14)
    follower = Follower(story.write())
    follower.poll()
    follower.poll()
    assert follower.unfinished == {("payments", "0", "1"), ("payments", "1", "0")}
    assert follower.handed_last_ns == {("payments", "0"): 15 * MILLISECOND}
    assert follower.acknowledged == 3
    story.done("b", 0, 1, at=20)
    story.write()
    follower.poll()
    assert follower.unfinished == {("payments", "1", "0")}

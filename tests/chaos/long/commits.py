"""What is wrong with a group's commits, beyond what they are ahead of or behind: those that are missing.

Evidence: the commits that the coordinator took, and when members were handed records and had done them. It looks for:

*no start*
    a partition was delivered from before any commit of it was taken: a crash would have repeated all of it.
*commit late*
    a member had done a record, lived on in the group, and no commit covered the record for more than 20 s. Members
    commit each half second, or after each batch.
*left uncommitted*
    the member that had done the last record of a partition ended in order, and no commit covers the record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from demo.journal import Delivered, Tp

from .evidence import SLACK_NS, Evidence, name_of

__all__ = ["LATE_NS", "missing_commits"]

LATE_NS = 20 * 10**9
"""Chosen: above all that a fault may cost, a broker's absence of 9 s and a session; some 9 s were measured."""


def missing_commits(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield what is missing, each as the rule's name and a text."""
    handouts: defaultdict[Tp, list[Delivered]] = defaultdict(list)
    for handout in evidence.run.handouts():
        handouts[handout.tp].append(handout)
    for tp, of in sorted(handouts.items()):
        commits = evidence.commits.get(tp, [])
        yield from _start(evidence, of, commits)
        yield from _late(evidence, of, _advances(commits))
        yield from _end(evidence, of, commits)


def _start(evidence: Evidence, handouts: list[Delivered], commits: list[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    first = min(handouts, key=lambda handout: handout.handed_ns)
    begun = bool(commits) and commits[0][0] - SLACK_NS <= first.handed_ns
    if not begun and not evidence.mixed_lately(first.handed_ns):
        yield "no start", evidence.text(first)


def _advances(commits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(offset, time): the first commit of that offset or a later one. Both ascend."""
    found: list[tuple[int, int]] = []
    for at_ns, offset in commits:
        if not found or offset > found[-1][0]:
            found.append((offset, at_ns))
    return found


def _late(evidence: Evidence, handouts: list[Delivered], advances: list[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    worst: dict[str, tuple[int, Delivered]] = {}
    for handout in handouts:
        if handout.done_ns is None:
            continue
        index = bisect_right(advances, handout.offset, key=lambda advance: advance[0])
        covered_ns = [advances[index][1]] if index < len(advances) else []
        waited_ns = min([*covered_ns, _out_ns(evidence, handout)]) - handout.done_ns
        if waited_ns > LATE_NS and not evidence.mixed_lately(handout.done_ns):
            worst[handout.process] = max(
                worst.get(handout.process, (0, handout)), (waited_ns, handout), key=lambda w: w[0]
            )
    for waited_ns, handout in worst.values():
        yield "commit late", f"{evidence.text(handout)}, not committed for {waited_ns / 1e9:.1f} s"


def _out_ns(evidence: Evidence, handout: Delivered) -> int:
    """When the member died, ended or was out of the group, or the run was over: what it had done is another's then."""
    gone_ns = evidence.processes[handout.process].gone_ns()
    name, membership = name_of(handout.process), evidence.membership
    out = [at for at in (*membership.evictions[name], *membership.stopped[name]) if at >= handout.handed_ns]
    return min([evidence.last_ns if gone_ns is None else gone_ns, *out])


def _end(evidence: Evidence, handouts: list[Delivered], commits: list[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    done = [handout for handout in handouts if handout.done_ns is not None]
    if not done:
        return
    last = max(done, key=lambda handout: (handout.offset, handout.handed_ns))
    ending = evidence.notes.endings.get(name_of(last.process))
    in_order = ending is not None and ending.code == 0 and not ending.crash
    committed = commits[-1][1] if commits else -1
    if in_order and committed <= last.offset:
        yield "left uncommitted", f"{evidence.text(last)}; committed was {committed}"

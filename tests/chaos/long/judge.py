"""The independent judge of a run: journals, the coordinator's own log, and what faults were in force when.

It believes the producers (what was acknowledged, committed, aborted), the members' journals (what was handed out and
done, when), and the broker (which commits it took, who was in the group). It asks nothing of the agents. The demo's
checker finds what is lost, foreign, or owned twice; the rest is found here:

*repeated*
    a record was handed out again although nobody had died, lost its membership, or given it up.
*below a commit*
    a record was handed out although the last accepted commit of its partition was behind it.
*committed ahead*
    a commit was accepted of a record that nobody had done by then.
*aborted*
    a record of a transaction that was not committed was handed out.
*shut out*
    a member was handed a record while the broker had it in no generation.
*unowned*
    a partition had records to deliver, and stood still for longer than the bound: another one for mixed groups (I5).
*ended*
    a process ended by itself, where no fault asked for that; or more transactional members than the faults that
    reach their producers can end.
*evicted*
    the broker took a live member out of the group where no fault in force that met it costs a member its session.
*unnoticed*
    the control topic lost what members had read, and they began no generation (rule 10).
*restless*
    the group began generations without end.
*not well*
    long after a fault a partition was not consumed again, or the members were not in one generation.
*disordered*
    a record was handed out for the first time after a later one of its partition (I2: nothing is skipped).
*not played*
    more than a tenth of the faults, or the only one, were not played as they should: the run proves too little.

Commits that are missing are found by :mod:`chaos.long.commits`, what is wrong with the output of transactional members
by :mod:`chaos.long.outputs`.

Excused, and counted apart, is what docs/guarantees.md excuses:

* what a member had in hand or had done since its last commit when it was killed, or was told that its rights on the
  group were gone;
* the same of a member whose session has ended at the broker: it was frozen, cut off, or asked for no record for too
  long. Its record in hand may run on beside the next owner's;
* the record in hand of a member that was told to stop, and left before user code was through with it;
* a record that user code gave up, by an exception or a break;
* in a mixed group, and for a session after it, everything but a loss: members without the agent know no lease and
  commit what they have in hand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from demo.checker import check
from demo.journal import Delivered, Tp

from .commits import missing_commits
from .evidence import SLACK_NS, Evidence, Window, name_of
from .load import ABORTED
from .outputs import LATE_SECONDS, Outputs, wrong_outputs

__all__ = ["Judgement", "Row", "judge"]

NO_FAULT = "(none)"
FAILED_SHARE = 0.1
"""Of the faults: where more of them were not played as they should, the run proves too little. Chosen."""
RESTLESS_NS, RESTLESS_MAX = 10 * 10**9, 40
"""So many generations in so long. Chosen: twice what deploys and rolling restarts of ten members make, 19."""
PRODUCER_NS = 20 * 10**9
"""Within so long after a fault a producer may end by it: twice its requests' time."""


@dataclass(slots=True)
class Row:
    """What one kind of fault came to."""

    count: int = 0
    worst_seconds: float = 0.0
    """Longest time that a partition with records to deliver stood still."""
    repeats: int = 0


@dataclass(slots=True)
class Judgement:
    """What the judge found."""

    bound_seconds: float
    bound_mixed_seconds: float
    sent: int = 0
    acknowledged: int = 0
    aborted: int = 0
    delivered: int = 0
    outputs: int = 0
    """Records that transactional members have put out."""
    transactions: int = 0
    """Transactions that are visible in the output."""
    output_seconds: float = 0.0
    """Longest time from the acknowledgement of a record to its transactional output."""
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    excused: Counter[str] = field(default_factory=Counter)
    rows: dict[str, Row] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Faults that were not played as they should: they prove nothing."""

    @property
    def ok(self) -> bool:
        return not any(self.violations.values())


def judge(evidence: Evidence) -> Judgement:
    """Judge a run.

    Raises:
        JournalError: nothing was acknowledged, so nothing can be proved.
    """
    for process in evidence.run.processes:
        out = evidence.membership.evictions[process.name] + evidence.membership.stopped[process.name]
        process.lease_lost_ns = sorted([*process.lease_lost_ns, *out])
    sent = evidence.run.sent.values()
    found = Judgement(
        bound_seconds=evidence.notes.bound_seconds,
        bound_mixed_seconds=evidence.notes.bound_mixed_seconds,
        sent=len(sent),
        acknowledged=sum(record.offset is not None for record in sent),
        aborted=sum(record.refused == ABORTED for record in sent),
        delivered=len(evidence.by_record),
    )
    _played(evidence, found)
    _as_the_checker_says(evidence, found)
    _repeats(evidence, found)
    _ahead(evidence, found)
    _strangers(evidence, found)
    _standstills(evidence, found)
    _ends(evidence, found)
    _restless(evidence, found)
    for rule, text in missing_commits(evidence):
        found.violations[rule].append(text)
    if evidence.notes.outputs is not None:
        _outputs(evidence, evidence.notes.outputs, found)
    return found


def _played(evidence: Evidence, found: Judgement) -> None:
    """Count the faults, and look whether enough of them prove something."""
    for window in evidence.windows:
        found.rows.setdefault(window.kind, Row()).count += 1
        if window.failed:
            found.failed.append(f"{window.kind}: {window.failed}")
        if not window.well:
            at = f"from {evidence.seconds(window.begun_ns):.3f} to {evidence.seconds(window.recovered_ns):.3f} s"
            found.violations["not well"].append(f"{window.kind} ({window.detail}), {at}")
    _unnoticed(evidence, found)
    played = len(evidence.windows) - len(found.failed)
    if found.failed and (not played or len(found.failed) > max(1, FAILED_SHARE * len(evidence.windows))):
        found.violations["not played"] += found.failed


def _as_the_checker_says(evidence: Evidence, found: Judgement) -> None:
    verdict = check(evidence.run)
    found.violations["lost"] += map(str, (*verdict.lost, *verdict.left_over))
    found.violations["foreign"] += map(str, verdict.foreign)
    found.excused["two owners after a lost lease"] += len(verdict.after_lost_lease)
    for double in verdict.double_owners:
        last = max(double.holder.handed_at, double.intruder.handed_at)
        if evidence.mixed_lately(evidence.origin_ns + round(last * 1e9)):
            found.excused["two owners in a mixed group"] += 1
        else:
            found.violations["double owner"].append(str(double))
    for late in verdict.out_of_order:
        if evidence.mixed_lately(evidence.origin_ns + round(late.earlier.handed_at * 1e9)):
            found.excused["disordered in a mixed group"] += 1
        else:
            found.violations["disordered"].append(str(late))


def _repeats(evidence: Evidence, found: Judgement) -> None:
    for (tp, offset), handouts in evidence.by_record.items():
        for first, again in pairwise(handouts):
            between = first.handed_ns, again.handed_ns
            for kind in {window.kind for window in evidence.windows_in(*between)} or {NO_FAULT}:
                found.rows.setdefault(kind, Row()).repeats += 1
            if evidence.mixed_lately(again.handed_ns):
                found.excused["repeated in a mixed group"] += 1
                continue
            why = _excuse(evidence, first, again.handed_ns)
            texts = f"{evidence.text(first)}; again {evidence.text(again)}"
            if why:
                found.excused[f"repeated after {why}"] += 1
            else:
                found.violations["repeated"].append(texts)
            committed = _committed(evidence.commits.get(tp, []), again.handed_ns - SLACK_NS)
            if committed > offset:
                found.violations["below a commit"].append(f"{texts}; committed was {committed}")


def _excuse(evidence: Evidence, first: Delivered, again_ns: int) -> str:
    if evidence.crashed(first.process, first.handed_ns, again_ns):
        return "a crash"
    if evidence.membership.evicted(first.process, first.handed_ns, again_ns):
        return "a lost membership"
    if evidence.membership.left_with(first, again_ns):
        return "a stop with the record in hand"
    return "user code gave it up" if evidence.gave_up(first, again_ns) else ""


def _committed(commits: list[tuple[int, int]], at_ns: int) -> int:
    """The offset that was committed last by this time; -1: none was."""
    index = bisect_right(commits, at_ns, key=lambda commit: commit[0])
    return commits[index - 1][1] if index else -1


def _ahead(evidence: Evidence, found: Judgement) -> None:
    """Commits of records that nobody had done by then."""
    done: defaultdict[Tp, dict[int, int | None]] = defaultdict(dict)
    for record in evidence.run.sent.values():
        if record.offset is not None:
            done[record.tp][record.offset] = None
    for (tp, offset), handouts in evidence.by_record.items():
        done[tp][offset] = min((each.done_ns for each in handouts if each.done_ns is not None), default=None)
    for tp, commits in evidence.commits.items():
        offsets = sorted(done[tp])
        next_index = 0
        for at_ns, committed in commits:
            while next_index < len(offsets) and offsets[next_index] < committed:
                offset = offsets[next_index]
                next_index += 1
                done_ns = done[tp][offset]
                early = done_ns is None or done_ns > at_ns + SLACK_NS
                if early and evidence.mixed(at_ns, at_ns):
                    found.excused["committed in hand in a mixed group"] += 1
                elif early:
                    text = f"{tp} offset {offset} when {committed} was committed, {evidence.seconds(at_ns):.3f} s"
                    found.violations["committed ahead"].append(text)
        for (_, before), (at_ns, after) in pairwise(commits):
            if after >= before:
                continue
            if evidence.mixed(at_ns, at_ns):
                found.excused["commits that went back in a mixed group"] += 1
            else:
                text = f"{tp} from {before} to {after}, {evidence.seconds(at_ns):.3f} s"
                found.violations["committed back"].append(text)


def _outputs(evidence: Evidence, outputs: Outputs, found: Judgement) -> None:
    found.outputs = len(outputs.entries)
    found.transactions = len({entry.made.transaction for entry in outputs.entries})
    for entry in outputs.entries:
        record = evidence.run.sent.get(entry.made.record_id)
        if record is not None and record.acked_ns is not None:
            late_seconds = (evidence.clock_ns(entry.at_ms / 1000) - record.acked_ns) / 1e9
            found.output_seconds = max(found.output_seconds, late_seconds)
            if late_seconds > LATE_SECONDS:
                text = f"{record.tp} offset {record.offset} by {entry.made.transaction}: {late_seconds:.1f} s"
                found.violations["output late"].append(text)
    for rule, text in wrong_outputs(evidence.run.sent, outputs):
        found.violations[rule].append(text)


def _strangers(evidence: Evidence, found: Judgement) -> None:
    """Records of aborted transactions, and what was handed to a member that the group did not have."""
    for handouts in evidence.by_record.values():
        for handout in handouts:
            sent = evidence.run.sent.get(handout.record_id)
            if sent is not None and sent.refused == ABORTED:
                found.violations["aborted"].append(evidence.text(handout))
            inside = evidence.membership.had(name_of(handout.process), handout.handed_ns)
            if not inside and not evidence.mixed(handout.handed_ns, handout.handed_ns):
                found.violations["shut out"].append(evidence.text(handout))


def _standstills(evidence: Evidence, found: Judgement) -> None:
    notes = evidence.notes
    handed: defaultdict[Tp, list[tuple[int, str]]] = defaultdict(list)
    for handout in sorted(evidence.run.handouts(), key=lambda handout: handout.handed_ns):
        handed[handout.tp].append((handout.handed_ns, name_of(handout.process)))
    for tp, from_ns, until_ns in _still(evidence):
        windows = list(evidence.windows_in(from_ns, until_ns))
        own = [window for window in windows if _holds_up(evidence, window, handed[tp], from_ns, until_ns)]
        faults_ns = _covered((max(from_ns, window.begun_ns), min(until_ns, window.over_ns)) for window in own)
        seconds = (until_ns - from_ns - faults_ns) / 1e9
        for kind in {window.kind for window in windows} or {NO_FAULT}:
            row = found.rows.setdefault(kind, Row())
            row.worst_seconds = max(row.worst_seconds, seconds)
        mixed = any(window.mixed for window in windows)
        if seconds > (notes.bound_mixed_seconds if mixed else notes.bound_seconds):
            kinds = ", ".join(sorted({window.kind for window in windows})) or "no fault"
            at = f"from {evidence.seconds(from_ns):.3f} to {evidence.seconds(until_ns):.3f} s"
            found.violations["unowned"].append(f"{tp} stood still {at}, {seconds:.2f} s without the fault's ({kinds})")


def _holds_up(evidence: Evidence, window: Window, handed: list[tuple[int, str]], from_ns: int, until_ns: int) -> bool:
    """Whether a fault may itself have kept a partition from being consumed.

    Not where another member than it met was handed its records before and afterwards, and was never out in between.
    """
    if not window.over_ns or not window.meets:
        return bool(window.over_ns)
    index = bisect_right(handed, from_ns, key=lambda each: each[0]) - 1
    before = handed[index][1] if index >= 0 else ""
    after = handed[bisect_left(handed, until_ns, key=lambda each: each[0])][1]
    return before != after or window.met(before) or evidence.membership.evicted(before, from_ns, until_ns)


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Length of what these cover together."""
    covered, end = 0, 0
    for begun, until in sorted(spans):
        covered += max(0, until - max(begun, end))
        end = max(end, until)
    return covered


def _still(evidence: Evidence) -> Iterator[tuple[Tp, int, int]]:
    """(partition, from, until): there was a record to deliver, and none was handed out until then."""
    first = {key: handouts[0].handed_ns for key, handouts in evidence.by_record.items()}
    events: defaultdict[Tp, list[tuple[int, int]]] = defaultdict(list)  # (time, change of what waits)
    for record in evidence.run.sent.values():
        if record.offset is None or record.acked_ns is None:
            continue
        handed_ns = first.get((record.tp, record.offset))
        if handed_ns is not None and handed_ns > record.acked_ns:
            events[record.tp] += [(record.acked_ns, 1), (handed_ns, -1)]
    for handouts in evidence.by_record.values():
        events[handouts[0].tp] += [(handout.handed_ns, 0) for handout in handouts]
    for tp, changes in sorted(events.items()):
        yield from _still_of(tp, sorted(changes))


def _still_of(tp: Tp, changes: Iterable[tuple[int, int]]) -> Iterator[tuple[Tp, int, int]]:
    waiting, since_ns = 0, 0
    for at_ns, change in changes:
        if change == 1:
            since_ns = at_ns if waiting == 0 else since_ns
        elif waiting > 0:
            if at_ns > since_ns:
                yield tp, since_ns, at_ns
            since_ns = at_ns
        waiting += change


def _ends(evidence: Evidence, found: Judgement) -> None:
    caused: Counter[int] = Counter()  # window -> ends
    for name, ending in sorted(evidence.notes.endings.items(), key=lambda item: item[1].at_ns):
        if ending.expected:
            continue
        recent = evidence.windows_in(ending.at_ns - PRODUCER_NS, ending.at_ns)
        fencing = [window for window in recent if window.met(name) and caused[id(window)] < window.fences]
        if ending.fenced and fencing:
            caused[id(min(fencing, key=lambda window: not window.meets))] += 1
            found.excused["ends of transactional members"] += 1
        else:
            found.violations["ended"].append(f"{name} with {ending.code}, {evidence.seconds(ending.at_ns):.3f} s")
    found.excused["evictions"] += sum(map(len, evidence.membership.evictions.values()))
    for name, at_ns in evidence.membership.unexplained:
        windows = evidence.windows_in(at_ns - evidence.session_ns, at_ns)
        kinds = ", ".join(sorted({window.kind for window in windows})) or "no fault"
        found.violations["evicted"].append(f"{name}, {evidence.seconds(at_ns):.3f} s ({kinds})")


def _unnoticed(evidence: Evidence, found: Judgement) -> None:
    """Look for the generation that members begin when the control topic has lost what they read.

    One with other members than before may be of that reason or of its own. A JoinGroup that was under way for its own
    is sent again to the next coordinator, when the cut has been noticed, and a second generation does not follow.
    """
    begun = []  # (time, whether with the members of the one before)
    before: dict[str, str] | None = None
    for generation in evidence.log.generations:
        begun.append((evidence.clock_ns(generation.at), generation.members == before))
        before = generation.members
    bound_ns = round(evidence.notes.bound_mixed_seconds * 1e9)
    for window in evidence.windows:
        if not window.cut_ns:
            continue
        until_ns = max(window.cut_ns, window.over_ns) + bound_ns
        same = [same for at_ns, same in begun if window.cut_ns - SLACK_NS <= at_ns <= until_ns]
        if not same:
            text = f"no generation from {evidence.seconds(window.cut_ns):.3f} to {evidence.seconds(until_ns):.3f} s"
            found.violations["unnoticed"].append(f"{text} ({window.kind}: {window.detail})")
        elif not any(same):
            text = "each generation after it has other members, so nobody can tell whether it was noticed"
            found.failed.append(f"{window.kind}: {text} ({window.detail})")


def _restless(evidence: Evidence, found: Judgement) -> None:
    """Rebalances without end: a member that has to join again and again does so after ever longer pauses (rule 6)."""
    begun = [evidence.clock_ns(generation.at) for generation in evidence.log.generations]
    most, at_ns = max(((bisect_right(begun, at + RESTLESS_NS) - i, at) for i, at in enumerate(begun)), default=(0, 0))
    if most > RESTLESS_MAX:
        text = f"{most} generations within {RESTLESS_NS / 1e9:.0f} s, from {evidence.seconds(at_ns):.3f} s on"
        found.violations["restless"].append(text)

"""Advice where a policy misses the share: changes that were played, one at a time, on the same records.

Nothing is guessed. A fixed group of all replicas that may be there tells what kind of change can help. If it holds the
share, replicas come too late: a quicker start-up, a higher minimum, a baseline. If it does not, a partition is too much
for the one member that reads it, or there are too few of them. First of all is asked whether single records take longer
than the objective, for then no group helps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.baseline_records import WEEK_SECONDS, BaselineRecord

from ..loads.load import Load
from ..model.outcome import Outcome, percentile
from ..model.protocols import PROTOCOLS
from ..model.simulation import Options, simulate
from .fixed_group import play_fixed, replicas_at_first, replicas_most

__all__ = ["PART_SECONDS", "Advice", "Trial", "advise", "records_alone", "share_text"]

PART_SECONDS = 300
"""Of a longer load the worst stretch of this length is played: chosen, so that advice takes seconds."""
ALONE_RECORDS = 20_000
"""Records whose costs are drawn to see how many take longer than the objective by themselves."""
HELP_TOLD = 2
"""Changes that hold the share: so many are told, and no more are played."""
MINUTE = 60
MONDAY = 1_700_438_400
"""2023-11-20 00:00 UTC: when a load began that does not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One change that was played."""

    change: str
    """Name of what was changed: ``start-up``, ``minimum``, ``partitions``, ..."""
    words: str
    """The change in words, as a thing: ``a start-up of 5 s``."""
    share_in_time: float
    replica_minutes: float
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The changes that would help, or the reason why none does."""

    code: str
    """``tried``: some of the trials hold the share; ``none``: none does; ``record``: records alone take too long."""
    text: str
    trials: tuple[Trial, ...]
    begin: int
    """First second of the load that was played."""
    seconds: int
    """Length of what was played."""
    seed: int


@dataclass(frozen=True, slots=True)
class _Setting:
    """All that a run depends on."""

    load: Load
    config: PlanConfig
    options: Options

    def played(self) -> Outcome:
        return simulate(self.load, self.config, self.options)


Family = Iterator[tuple[str, str, _Setting]]
"""(change, words, changed setting), the smallest change first; the first that holds is enough."""


def records_alone(options: Options, objective_seconds: float, share: float) -> tuple[float, float]:
    """Return what records come to that wait for nothing, on the fastest member.

    Returns:
        (the share of them that takes longer than the objective, the objective that the share would hold).
    """
    draw = options.costs.drawer(Random("advice"))
    fastest = max(options.machines.speeds)
    took = sorted(draw() / fastest + options.machines.fetch_seconds for _ in range(ALONE_RECORDS))
    return 1.0 - bisect_right(took, objective_seconds) / ALONE_RECORDS, percentile(took, share)


def advise(
    load: Load, config: PlanConfig, options: Options, outcome: Outcome, progress: Callable[[str], None] | None = None
) -> Advice:
    """Return what would have held the share.

    Args:
        load: what was played.
        config: of the planner whose group missed it.
        options: of the run, its seed included.
        outcome: what came of it.
        progress: told what is played next.
    """
    begin, seconds = _worst_part(outcome)
    alone, least = records_alone(options, config.sla_seconds, config.sla_share)
    if alone > 1.0 - config.sla_share:
        text = (
            f"no group helps: {alone * 100:.2f} % of the records take longer than W = {config.sla_seconds:g} s by "
            f"themselves; {share_text(config)} in time takes an objective of {_round_up(least):g} s or more, or "
            "quicker records"
        )
        return Advice(code="record", text=text, trials=(), begin=begin, seconds=seconds, seed=options.seed)
    setting = _Setting(load.part(begin, seconds), config, _begun(load, config, options, begin, seconds))
    trials = _tried(setting, progress or (lambda _: None))
    helped = sorted((trial for trial in trials if trial.holds), key=lambda trial: trial.replica_minutes)
    text = _text(config, helped, trials, None if seconds == load.seconds else (begin, seconds))
    return Advice(
        code="tried" if helped else "none",
        text=text,
        trials=tuple(trials),
        begin=begin,
        seconds=seconds,
        seed=options.seed,
    )


def _tried(setting: _Setting, progress: Callable[[str], None]) -> list[Trial]:
    """Play changes until enough of them hold the share."""
    trials: list[Trial] = []
    for family in _families(setting):
        trials += _played(family, setting.config.sla_share, progress)
        if sum(trial.holds for trial in trials) == HELP_TOLD:
            return trials
    if not any(trial.holds for trial in trials):
        # It answers another question than the one that was asked.
        trials += _played(_objectives(setting), setting.config.sla_share, progress)
    return trials


def _played(family: Family, share: float, progress: Callable[[str], None]) -> list[Trial]:
    """Play changes of one kind until one holds the share."""
    trials: list[Trial] = []
    for change, words, changed in family:
        progress(words)
        outcome = changed.played()
        holds = outcome.share_in_time >= share
        trials.append(
            Trial(
                change=change,
                words=words,
                share_in_time=outcome.share_in_time,
                replica_minutes=outcome.replica_minutes,
                holds=holds,
            )
        )
        if holds:
            break
    return trials


def _worst_part(outcome: Outcome) -> tuple[int, int]:
    """Return where the stretch with the most late records begins, and its length."""
    late, length = outcome.late_by_arrival, outcome.seconds
    if length <= PART_SECONDS:
        return 0, length
    total = most = sum(late[:PART_SECONDS])
    worst = [0]
    for first in range(1, length - PART_SECONDS + 1):
        total += late[first + PART_SECONDS - 1] - late[first - 1]
        if total >= most:
            worst = [*(worst if total == most else ()), first]
            most = total
    # Of those that are equally bad, the one with as much before the late records as behind them.
    return worst[len(worst) // 2], PART_SECONDS


def _begun(load: Load, config: PlanConfig, options: Options, begin: int, seconds: int) -> Options:
    """Return the options for a part: a group that has gone on for a while has what its first seconds take."""
    if begin == 0:
        return options
    part = load.part(begin, seconds)
    at = None if options.begins_at is None else options.begins_at + begin
    return replace(options, replicas=replicas_at_first(part, config, options), begins_at=at)


def _families(setting: _Setting) -> Iterator[Family]:
    """Return the changes that may help, by what a fixed group of all replicas comes to."""
    load, config, options = setting.load, setting.config, setting.options
    most = replicas_most(load, config)
    yield _policies(setting)
    if play_fixed(load, config, options, most).share_in_time >= config.sla_share:
        yield from (_replicas_begun(setting), _minimums(setting, most), _startups(setting), _baselines(setting))
    else:
        yield from (_maximums(setting, most), _partitions(setting))


def _policies(setting: _Setting) -> Family:
    """Yield our own policy, and our own way to hand partitions over."""
    if setting.options.protocol.rebalances:
        changed = replace(setting.options, protocol=PROTOCOLS["loadtrim"])
        yield "protocol", "--protocol loadtrim", replace(setting, options=changed)
    if setting.config.policy.partition(":")[0] != "objective":
        config = msgspec.structs.replace(setting.config, policy="objective", packer="trim")
        yield "policy", *_begun_anew("--policy objective", replace(setting, config=config))


def _begun_anew(words: str, setting: _Setting) -> tuple[str, _Setting]:
    """Return a changed setting that begins with what its first seconds take: a cold start is another matter."""
    replicas = replicas_at_first(setting.load, setting.config, setting.options)
    if replicas <= setting.options.replicas:
        return words, setting
    return f"{words} --replicas {replicas}", replace(setting, options=replace(setting.options, replicas=replicas))


def _replicas_begun(setting: _Setting) -> Family:
    replicas = replicas_at_first(setting.load, setting.config, setting.options)
    if replicas > setting.options.replicas:
        options = replace(setting.options, replicas=replicas)
        yield "replicas", f"--replicas {replicas} at the start", replace(setting, options=options)


def _startups(setting: _Setting) -> Family:
    seconds = setting.options.startup_seconds
    for part in (2.0, 4.0, 10.0):
        if (shorter := seconds / part) >= 0.5:
            config = msgspec.structs.replace(setting.config, startup_seconds=shorter)
            options = replace(setting.options, startup_seconds=shorter)
            yield "start-up", f"a start-up of {shorter:.3g} s", replace(setting, config=config, options=options)


def _minimums(setting: _Setting, most: int) -> Family:
    """Yield minimums that grow, the last one with all replicas all the time."""
    least = setting.config.min_replicas
    while least < most:
        least = min(most, max(least + 1, round(least * 1.25)))
        config = msgspec.structs.replace(setting.config, min_replicas=least)
        options = replace(setting.options, replicas=max(least, setting.options.replicas))
        yield "minimum", f"--min {least}", replace(setting, config=config, options=options)


def _baselines(setting: _Setting) -> Family:
    """Yield a baseline that knows this load by the minute: the most that a history can tell."""
    load, options = setting.load, setting.options
    topics = {partition.topic for partition in load.partitions}
    plain = setting.config.policy.partition(":")[0] == "objective" and not options.baselines
    if not plain or len(topics) != 1 or load.seconds < 2 * MINUTE or not load.records:
        return
    begins_at = float(MONDAY) if options.begins_at is None else float(int(options.begins_at))
    rate = load.records / load.seconds
    shape = [1000] * (WEEK_SECONDS // MINUTE)
    for second in range(0, load.seconds, MINUTE):
        part = load.per_second[second : second + MINUTE]
        slot = int(begins_at + second - MONDAY) % WEEK_SECONDS // MINUTE
        shape[slot] = round(1000.0 * sum(part) / len(part) / rate)
    record = BaselineRecord(
        group=setting.config.group,
        topic=topics.pop(),
        at=begins_at,
        rate=rate,
        bucket_seconds=MINUTE,
        shape=tuple(shape),
        until=begins_at,
        time_zone="UTC",
        error=0.0,
    )
    changed = replace(options, begins_at=begins_at, baselines=(record,))
    yield "baseline", "a baseline, if the load comes at these times again", replace(setting, options=changed)


def _maximums(setting: _Setting, most: int) -> Family:
    partitions = len(setting.load.partitions)
    while most < partitions:
        most = min(partitions, max(most + 1, round(most * 1.25)))
        config = msgspec.structs.replace(setting.config, max_replicas=most)
        yield "maximum", *_begun_anew(f"--max {most}", replace(setting, config=config))


def _partitions(setting: _Setting) -> Family:
    """Yield each partition cut into equal ones; a maximum that was given stays."""
    for times in (2, 4):
        load = _cut(setting.load, times)
        words = f"{len(load.partitions)} partitions, over which keys fall as evenly"
        yield "partitions", words, replace(setting, load=load)


def _cut(load: Load, times: int) -> Load:
    partitions: list[Partition] = []
    order: list[int] = []
    for index, partition in enumerate(load.partitions):
        for part in range(times):
            order.append(index)
            partitions.append(Partition(partition.topic, partition.partition * times + part))
    shares = tuple(tuple(row[index] / times for index in order) for row in load.shares)
    # Moments name partitions, and which record of one falls on which half of it is for chance to say.
    moments = tuple(tuple(replace(moment, partition=None) for moment in second) for second in load.moments)
    return replace(load, partitions=tuple(partitions), shares=shares, moments=moments, keys="random")


def _objectives(setting: _Setting) -> Family:
    for times in (2.0, 4.0):
        seconds = setting.config.sla_seconds * times
        config = msgspec.structs.replace(setting.config, sla_seconds=seconds)
        yield "objective", f"an objective of {seconds:g} s", replace(setting, config=config)


def _round_up(seconds: float) -> float:
    """Return a time with two digits that is no shorter."""
    unit = 10.0 ** (len(f"{seconds:.0f}") - 2) if seconds >= 10.0 else 0.1 if seconds >= 1.0 else 0.01
    return round((int(seconds / unit) + 1) * unit, 6)


def share_text(config: PlanConfig) -> str:
    """Return the share that is asked for, in words."""
    return f"{config.sla_share * 100:.10g} %"


def _text(config: PlanConfig, helped: Sequence[Trial], trials: Sequence[Trial], part: tuple[int, int] | None) -> str:
    where = "" if part is None else f", played on the worst {part[1]} s from second {part[0]} on"
    asked = share_text(config)

    def told(trial: Trial) -> str:
        return f"{trial.words} ({trial.share_in_time * 100:.2f} %, {trial.replica_minutes:.2f} replica-min)"

    if helped:
        ways = " or ".join(told(trial) for trial in helped)
        return f"{asked} would be held with {ways}{where}"
    if not trials:
        return f"nothing is known that would hold {asked}{where}"
    best = max(trials, key=lambda trial: trial.share_in_time)
    return f"no single change of {len(trials)} that were played holds {asked}{where}; the best is {told(best)}"

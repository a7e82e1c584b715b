"""From weeks of telemetry to replicas that are there before the rise, on a real Kafka and a real Spark.

``make demo-spark``, or, with ``loadtrim[demo,spark]`` installed: ``python -m benchmarks.baselines``.
About ten minutes, most of them Spark's and waiting: the rise comes at a full five minutes of the wall clock.

1. Weeks of a group's telemetry are written to Kafka, with the times that they would have had.
2. ``python -m loadtrim_spark ingest`` reads them into a history, ``... baselines`` learns from it and publishes.
3. Two real groups (examples/payments) run on the same Kafka and get the same load: the one whose history was learnt,
   and one without. A minute and a half of a low level, then the rise that the history has at this time of every day.
4. When did each leader ask for replicas, and what was late meanwhile?

Settings, from the environment:

=================  ===========  ========================================================================
variable           default      meaning
=================  ===========  ========================================================================
``WEEKS``          ``3``        of telemetry, 2 to 12
``STARTUP``        ``20``       seconds that the orchestrator takes for a replica
``W``              ``0.5``      the objective: seconds from a record's timestamp until it is done
``BUSY``           ``0.0059``   seconds that a record takes
``LOW``            ``100``      seconds of the low level before the rise, at least 90
``HIGH``           ``75``       seconds of the high level after it, at least 60
``PREPARE``        (measured)   seconds that steps 1 and 2 are given; the rise is planned behind them
``OUT``            ``out``      where picture, numbers and the runs' evidence go
=================  ===========  ========================================================================

A Kafka of its own is always started: weeks of telemetry that never happened belong into no cluster of anybody's.

Exit codes: 0; 1 something was lost or owned twice, or the group with baselines did not want its replicas before the
rise; 2 wrong use; 3 the run failed, also when there was not time enough before the rise; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.baselines.groups import play_both
from benchmarks.baselines.outcome import GroupsOutcome, judged, render
from benchmarks.baselines.past import PastWeeks, load_of, truth_rising_at
from benchmarks.baselines.prepare import Pipeline, StepFailedError, fetch_jars, hand_over, write_past
from benchmarks.baselines.schedule import BUCKET_SECONDS, LOW_SECONDS_MIN, NotInTimeError, Schedule, clock, planned
from demo.load import shares_even
from demo.report import Report
from demo.run import RunFailedError, RunOptions
from demo.settings import number
from loadtrim.testing import LocalKafka, LocalKafkaError
from loadtrim_agent.leader.loop import REPLAY_SECONDS
from loadtrim_spark.evaluation.truth import WEEK_SECONDS, Truth

__all__ = ["DemoSettings", "main", "settings_of"]

LEARNT, PLAIN = "with baselines", "without"
GROUPS = {LEARNT: "payments-with-history", PLAIN: "payments-without"}
TOPICS = {LEARNT: "payments", PLAIN: "payments-again"}
PARTITIONS = 12
"""They divide over 1, 2, 3, 4 and 6 replicas."""
REPLICAS_MAX = 8
"""Of each group: more processes than this leave two cores no time for what is to be seen."""
PREPARE_FACTOR = 10.0
"""Steps 1 and 2 are given so many times what `ingest` takes where there is nothing to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the environment says; durations in seconds."""

    out: Path
    weeks: int
    startup_seconds: float
    objective_seconds: float
    busy_seconds: float
    low_seconds: int
    high_seconds: int
    prepare_seconds: float | None

    @property
    def evidence(self) -> Path:
        """Directory of tables, journals and logs."""
        return self.out / "demo-spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What steps 1 and 2 came to; durations in seconds."""

    schedule: Schedule
    truth: Truth
    reports: int
    written_seconds: float
    ingest_seconds: float
    baselines_seconds: float


def settings_of(env: Mapping[str, str]) -> DemoSettings:
    """Read the demo's settings.

    Raises:
        ValueError: one of them cannot be used; the message names it.
    """
    weeks = int(number(env, "WEEKS", 3, least=2))
    if weeks > 12:
        raise ValueError(f"WEEKS is {weeks}; allowed: 2 to 12")
    return DemoSettings(
        out=Path(env.get("OUT", "out")),
        weeks=weeks,
        startup_seconds=number(env, "STARTUP", 20.0, least=0.0),
        objective_seconds=number(env, "W", 0.5, least=0.001),
        busy_seconds=number(env, "BUSY", 0.0059, least=1e-6),
        low_seconds=int(number(env, "LOW", 100, least=LOW_SECONDS_MIN)),
        high_seconds=int(number(env, "HIGH", 75, least=60)),
        prepare_seconds=number(env, "PREPARE", 0.0, least=1.0) if env.get("PREPARE") else None,
    )


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def _prepare(settings: DemoSettings, bootstrap: str) -> Prepared:
    """Steps 1 and 2.

    Raises:
        StepFailedError: a command of the pipeline failed.
        NotInTimeError: the rise would come before the groups were ready.
    """
    pipeline = Pipeline(bootstrap, (settings.evidence / "state").resolve(), say)
    seconds = settings.prepare_seconds
    if seconds is None:
        say("\nHow fast is this machine? The pipeline, where there is nothing to read yet:")
        seconds = PREPARE_FACTOR * pipeline.ingest()
    began = time.time()
    schedule = planned(began, seconds, settings.low_seconds)
    say(
        f"\nThe load will rise at {clock(schedule.rise_at)} UTC, in {schedule.rise_at - began:.0f} s: {seconds:.0f} s "
        f"are given to making and learning the history, and the groups start at {clock(schedule.groups_at)}."
    )
    truth = truth_rising_at(schedule.rise_at, settings.weeks, shares_even(PARTITIONS), settings.busy_seconds)
    # A leader goes on from what the last minutes' reports say, and these were made up: the group was away for a while.
    end = int(min(began, schedule.groups_at - REPLAY_SECONDS) // BUCKET_SECONDS * BUCKET_SECONDS)
    past = PastWeeks(
        group=GROUPS[LEARNT],
        topic=TOPICS[LEARNT],
        truth=truth,
        begin=end - settings.weeks * WEEK_SECONDS,
        end=end,
        objective_seconds=settings.objective_seconds,
        startup_seconds=settings.startup_seconds,
    )
    written = asyncio.run(write_past(bootstrap, past))
    written_seconds = time.time() - began
    say(
        f"\n{settings.weeks} weeks of telemetry of {past.group} are in Kafka: {written.records:,} reports, "
        f"{written.size_bytes / 1e6:.0f} MB, in {written_seconds:.1f} s."
    )
    ingest_seconds = pipeline.ingest()
    baselines_seconds = pipeline.baselines(settings.weeks)
    asyncio.run(hand_over(bootstrap, past.group))
    now = time.time()
    schedule.check(began, now)
    left = schedule.groups_at - now
    say(f"\nThe history is made and learnt, in {now - began:.0f} s; the groups start in {left:.0f} s.")
    return Prepared(
        schedule=schedule,
        truth=truth,
        reports=written.records,
        written_seconds=written_seconds,
        ingest_seconds=ingest_seconds,
        baselines_seconds=baselines_seconds,
    )


def _options(settings: DemoSettings, kafka: LocalKafka, prepared: Prepared, name: str) -> RunOptions:
    kafka.create_topic(PARTITIONS, TOPICS[name])
    schedule = prepared.schedule
    return RunOptions(
        bootstrap=kafka.bootstrap,
        topic=TOPICS[name],
        group=GROUPS[name],
        rates=load_of(prepared.truth, schedule.begin_at, settings.low_seconds + settings.high_seconds),
        shares=shares_even(PARTITIONS),
        directory=settings.evidence / name.replace(" ", "-"),
        objective_seconds=settings.objective_seconds,
        busy_seconds=settings.busy_seconds,
        startup_delay_seconds=settings.startup_seconds,
        replicas_max=REPLICAS_MAX,
        comparable=True,
    )


async def _play(options: tuple[RunOptions, RunOptions], schedule: Schedule) -> tuple[Report, Report]:
    await asyncio.sleep(max(0.0, schedule.groups_at - time.time()))
    say(f"{clock(time.time())}  Both groups start, with one replica each; T is {clock(schedule.rise_at)}.")
    return await play_both(options, (LEARNT, PLAIN), schedule, say)


def _demo(settings: DemoSettings) -> GroupsOutcome:
    fetch_jars()  # before anything is timed
    shutil.rmtree(settings.evidence, ignore_errors=True)
    with LocalKafka() as kafka:
        prepared = _prepare(settings, kafka.bootstrap)
        options = (_options(settings, kafka, prepared, LEARNT), _options(settings, kafka, prepared, PLAIN))
        reports = asyncio.run(_play(options, prepared.schedule))
    directories = (options[0].directory, options[1].directory)
    replicas, learnt, plain = judged(reports, (LEARNT, PLAIN), directories, prepared.schedule)
    outcome = GroupsOutcome(
        rise_at=prepared.schedule.rise_at,
        low_seconds=settings.low_seconds,
        high_seconds=settings.high_seconds,
        startup_seconds=settings.startup_seconds,
        replicas=replicas,
        learnt=learnt,
        plain=plain,
        weeks=settings.weeks,
        reports=prepared.reports,
        written_seconds=prepared.written_seconds,
        ingest_seconds=prepared.ingest_seconds,
        baselines_seconds=prepared.baselines_seconds,
    )
    (settings.out / "demo-spark.json").write_bytes(outcome.as_json())
    from benchmarks.baselines.picture import picture  # matplotlib takes half a second, and only this draws

    picture(outcome, reports, settings.out / "demo-spark.png")
    return outcome


def main() -> int:
    """Run the demo. Returns the exit code (see the module)."""
    try:
        settings = settings_of(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        outcome = _demo(settings)
    except ModuleNotFoundError as error:
        print(f"{error}: this demo needs Spark: make demo-spark installs it", file=sys.stderr)
        return 2
    except (RunFailedError, StepFailedError, NotInTimeError, LocalKafkaError) as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("Interrupted; everything was stopped.", file=sys.stderr)
        return 130
    out = settings.out
    print(
        f"\n{render(outcome)}\n\nPicture: {out / 'demo-spark.png'}   numbers: {out / 'demo-spark.json'}   "
        f"evidence: {settings.evidence}"
    )
    for fault in outcome.faults:
        print(f"FAILED: {fault}.")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())

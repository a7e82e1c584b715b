"""The commands ``backtest``, ``report`` and ``generate``: where their data comes from and where their results go."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import sys
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.cli.flags import add_calendar, count, day, group_id, positive, share, startup
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.evaluation.backtest import METHODS, Score, backtested
from loadtrim_spark.evaluation.generate import arrivals, as_records, as_source, reports
from loadtrim_spark.evaluation.replay import ReplayedDay, Setup, played, whole_topics
from loadtrim_spark.evaluation.sources import Study, generated, recorded, remembered
from loadtrim_spark.evaluation.truth import SCENARIOS
from loadtrim_spark.learning.days import MINUTE_SECONDS
from loadtrim_spark.learning.learn import Calendar
from loadtrim_spark.learning.local_days import begin_of, midnight, spans
from loadtrim_spark.pipeline.baselines import BUCKET_SECONDS, baselines, current_days
from loadtrim_spark.pipeline.history import Tables, is_table, open_tables, take_in
from loadtrim_spark.pipeline.source import Source
from loadtrim_spark.reporting.story import Period, gather
from loadtrim_spark.session import check_zone, session

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_studies"]

DAY_SECONDS = 86_400
JUDGED_DAYS = 28
REPORT_DAYS = 7
PLAYED_DAYS_MAX = 364
"""As many as the weeks that can be looked back."""
PROGRESS_SECONDS = 60
"""Of the load that is played, between two lines of progress."""


def add_studies(commands: SubParsers, common: argparse.ArgumentParser) -> None:
    """Add the commands to the command line."""
    _add_backtest(commands, common)
    _add_report(commands, common)
    _add_generate(commands, common)


# -- backtest


def _add_backtest(commands: SubParsers, common: argparse.ArgumentParser) -> None:
    add = commands.add_parser(
        "backtest", parents=[common], help="how good would the baselines have been?",
        description="Rolling origin: at each midnight learns from the weeks before it, tells every minute of the time "
        "until the next origin, and compares with the rate of a week ago, the last bucket's, and the mean. Coverage: "
        "share of the minutes not above the quantile. Pinball loss: relative to the mean rate; smaller is better.",
    )  # fmt: skip
    source = add.add_mutually_exclusive_group()
    source.add_argument("--group", type=group_id, help="only this group of the history (default: all of them)")
    source.add_argument("--trace", metavar="FILE", help="instead of the history a CSV of time and count")
    source.add_argument("--generated", choices=sorted(SCENARIOS), help="instead of the history a generated load")
    add.add_argument("--from", dest="begin", type=day, metavar="DATE",
                     help=f"first midnight (default: {JUDGED_DAYS} days before the end)")  # fmt: skip
    add.add_argument("--to", dest="end", type=day, metavar="DATE", help="end of what is judged (default: of the data)")
    add.add_argument("--every-days", type=count, default=1, metavar="N", help="learn every N days (default: 1)")
    _add_calendar(add)
    play = add.add_argument_group(
        "what baselines are worth: the last days once with and once without, in the simulator"
    )
    play.add_argument("--play", type=count, metavar="N", help="play the last N days (some 10 minutes a day, twice)")
    play.add_argument("--sla", type=positive, default=5.0, metavar="S", help="the objective, seconds (default: 5)")
    play.add_argument("--share", type=share, default=0.999, metavar="P", help="of the records (default: 0.999)")
    play.add_argument("--startup", type=startup, default=60.0, metavar="S", help="of a replica, seconds (default: 60)")
    play.add_argument("--peak-replicas", type=positive, default=5.0, metavar="N",
                      help="what the busiest second of a recorded load is worth (default: 5)")  # fmt: skip
    add.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add.set_defaults(run=_backtest, check=functools.partial(_check_backtest, add))


def _check_backtest(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse what can be told before anything is learnt, which takes minutes."""
    if args.play and not (args.group or args.trace or args.generated):
        parser.error("argument --play: only one group can be played at a time: name it by --group")
    if args.play and args.play > PLAYED_DAYS_MAX:
        parser.error(f"argument --play: {args.play}: 1 to {PLAYED_DAYS_MAX} days")


def _backtest(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    if not (args.generated or args.trace or _has_history(spark, tables, "nothing was judged")):
        return
    check_zone(spark, args.time_zone)
    study = _study(args, spark, tables)
    newest = study.days.agg(F.max("start")).first()
    if newest is None or newest[0] is None:
        of_group = f"the history in {tables.root} has nothing of the group {args.group}: look at --group and --state"
        print(of_group if args.group else "there is nothing to judge by yet", file=sys.stderr)
        return
    until = newest[0] + study.bucket_seconds
    end = min(begin_of(args.end, study.zone), until) if args.end else midnight(until, study.zone)
    begin = begin_of(args.begin, study.zone) if args.begin else midnight(end, study.zone, -JUDGED_DAYS)
    if begin >= end:
        raise PipelineError(
            f"Nothing lies between {_words(begin)} and {_words(end)}.",
            "Nothing was judged.",
            "Give --from and --to, dates within the data.",
        )
    calendar = Calendar(end, study.zone, study.bucket_seconds, args.weeks)
    found = backtested(study.days, calendar, begin, args.every_days)
    if not args.json:
        print("\n".join(_table(found, begin, end)), flush=True)
    days = _played_days(args, study, end)
    if args.json:
        print(json.dumps({"scores": [asdict(score) for score in found], "played": days}, indent=1))


def _study(args: argparse.Namespace, spark: SparkSession, tables: Tables) -> Study:
    bucket = _bucket_seconds(args)
    if args.generated:
        return generated(spark, args.generated, bucket or BUCKET_SECONDS)
    if args.trace:
        return recorded(spark, _found(args.trace), bucket or BUCKET_SECONDS, args.time_zone)
    return remembered(spark, tables, args.group, bucket, args.time_zone)


def _played_days(args: argparse.Namespace, study: Study, end: int) -> list[dict[str, Any]]:
    """Play the last whole days, each with what would have been published at its midnight."""
    setup = Setup(objective_seconds=args.sla, objective_share=args.share, startup_seconds=args.startup,
                  peak_replicas=args.peak_replicas)  # fmt: skip
    days = []
    for begin, until in spans(midnight(end, study.zone, -(args.play or 0)), midnight(end, study.zone), study.zone):
        load = study.load(begin, until - begin)
        calendar = Calendar(begin, study.zone, study.bucket_seconds, args.weeks)
        known = study.days.where(F.col("start") + study.bucket_seconds <= begin)
        values = [row["value"] for row in baselines(known, calendar).where("key not like '%null,null]'").collect()]
        with_them, without = played(load, begin, whole_topics(values), setup, _progress(begin))
        days.append({"begin": begin, "with": asdict(with_them), "without": asdict(without)})
        if not args.json:
            print("\n".join(["", *_beside(begin, with_them, without)]), flush=True)
    return days


def _beside(begin: int, with_them: ReplayedDay, without: ReplayedDay) -> list[str]:
    lines = [f"{_words(begin)}, a day of {without.arrived:,} records"]
    for name, side in (("with", with_them), ("without", without)):
        lines.append(
            f"  {name:8} {side.share_in_time:9.4%} in time, {side.late:9,} late, {side.replica_minutes:9,.1f} "
            f"replica-minutes, up to {side.replicas_max} replicas, {side.scalings} scalings"
        )
    late = f"{with_them.late / without.late:.3f} times the late records" if without.late else "none late without them"
    return [*lines, f"  {late}, {with_them.replica_minutes / without.replica_minutes - 1:+.1%} replica-minutes"]


def _progress(begin: int) -> Callable[[int], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(second: int) -> None:
        if second % PROGRESS_SECONDS == 0:
            print(f"\r{_words(begin + second)} \x1b[K", end="\r", file=sys.stderr, flush=True)

    return show


def _table(found: Sequence[Score], begin: int, end: int) -> list[str]:
    """A block per topic: a line per method, coverage and loss per quantile, loss beside seasonal-naive's."""
    lines = [f"{_words(begin)} to {_words(end)}; coverage / pinball loss of p50, p90, p99"]
    for group, topic in sorted({(score.group, score.topic) for score in found}):
        own = [score for score in found if (score.group, score.topic) == (group, topic)]
        lines += ["", f"{group} {topic}: {own[0].minutes:,} minutes"]
        if own[0].pinball is None:
            lines.append("  nothing came in these minutes, so there is no rate to measure a loss by: it is left out")
            continue
        naive = _loss(own, "seasonal_naive")
        for method in METHODS:
            cells = [f"{s.coverage:7.2%} / {s.pinball:.4f}" for s in own if s.method == method]
            beside = f"{_loss(own, method) / naive - 1:+7.1%}" if naive else ""
            lines.append(f"  {method:15} {'   '.join(cells)}   sum {_loss(own, method):.4f} {beside}")
    return lines if found else [*lines, "", "no topic has a week to learn from before that"]


def _loss(own: Sequence[Score], method: str) -> float:
    return sum(score.pinball or 0.0 for score in own if score.method == method)


# -- report


def _add_report(commands: SubParsers, common: argparse.ArgumentParser) -> None:
    add = commands.add_parser(
        "report", parents=[common], help="a page with plots: what came, what it took, what was late"
    )
    add.add_argument("--group", type=group_id, help="only this group (default: the busiest)")
    add.add_argument("--days", type=positive, default=REPORT_DAYS, help="how far back from the newest record (default: "
                     "%(default)s)")  # fmt: skip
    add.add_argument("--output", type=Path, default=Path("loadtrim-report.html"), metavar="FILE",
                     help="where to (default: %(default)s)")  # fmt: skip
    _add_calendar(add)
    add.set_defaults(run=_report)


def _report(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    try:  # not at the top: other commands do without jinja2 and matplotlib
        from loadtrim_spark.reporting.report import page
    except ImportError as error:
        raise PipelineError(
            f"The page is made with jinja2 and matplotlib, and {error.name} is not installed.",
            "No page was written.",
            "Install loadtrim[spark-report].",
        ) from error
    spark = session(args.master, args.memory)
    if not _has_history(spark, tables, "no page was written"):
        return
    check_zone(spark, args.time_zone)
    days, bucket = current_days(spark, tables, _bucket_seconds(args), args.group)
    history = spark.read.format("delta").load(tables.history)
    history = history.where(F.col("group") == args.group) if args.group else history
    newest = history.agg(F.max("at")).first()
    if newest is None or newest[0] is None:
        what = f"nothing of the group {args.group}" if args.group else "nothing to tell of yet"
        print(f"the history in {tables.root} has {what}: no page was written", file=sys.stderr)
        return
    end = int(newest[0]) + 1
    period = Period(begin=int(end - args.days * DAY_SECONDS), end=end, zone=args.time_zone)
    stories = gather(history, days, period, Calendar(end, args.time_zone, bucket, args.weeks))
    made = datetime.datetime.now(zoneinfo.ZoneInfo(args.time_zone)).strftime("%Y-%m-%d %H:%M")
    try:
        args.output.write_text(page(stories, period, made), encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{args.output} cannot be written: {error.strerror}.", "There is no page.", "Name another file by --output."
        ) from error
    print(f"{args.output}: {len(stories)} groups, {args.days:g} days")


# -- generate


def _add_generate(commands: SubParsers, common: argparse.ArgumentParser) -> None:
    add = commands.add_parser(
        "generate", parents=[common], help="telemetry of a made-up group, to try all this with",
        description="Eight weeks of a made-up load, as the reports of three members: into the history, or with --kafka "
        "to the group's control topic, which has to be there (take it in with ingest --late 9e9).",
    )  # fmt: skip
    add.add_argument("--scenario", choices=sorted(SCENARIOS), default="steep",
                     help="its load: rises by the clock (steep), people's days (office), or much noise and clocks that "
                     "change (berlin) (default: %(default)s)")  # fmt: skip
    add.add_argument("--group", type=group_id, default="generated", help="its name (default: %(default)s)")
    add.add_argument("--report-seconds", type=int, choices=(1, 5, 10, 60), default=60,
                     help="interval of a report (default: %(default)s)")  # fmt: skip
    add.add_argument("--kafka", action="store_true", help="write to the group's control topic")
    add.set_defaults(run=_generate)


def _generate(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    truth, topic = SCENARIOS[args.scenario], control_topic(args.group)
    rows = reports(arrivals(spark, truth), truth, args.group, report_seconds=args.report_seconds)
    if args.kafka:
        source.check(spark)
        as_records(rows, topic).write.format("kafka").options(**source.spark()).save()
        print(f"{rows.count()} reports written to {topic}")
        return
    open_tables(spark, tables)
    batch = take_in(as_source(rows, topic), tables, 1.0, f"generated/{args.scenario}/{args.group}")
    print(f"{args.group}: {batch}")


# -- common


def _add_calendar(parser: argparse.ArgumentParser) -> None:
    minutes = BUCKET_SECONDS // MINUTE_SECONDS
    add_calendar(parser, None, f"as baselines summed the history up last, else {minutes}")


def _bucket_seconds(args: argparse.Namespace) -> int | None:
    return args.bucket_minutes * MINUTE_SECONDS if args.bucket_minutes else None


def _has_history(spark: SparkSession, tables: Tables, means: str) -> bool:
    """Say so where there is none."""
    found = is_table(spark, tables.ledger)
    if not found:
        print(f"there is no history in {tables.root} yet: {means}; run ingest first, or name the right directory by "
              "--state; generate makes one up", file=sys.stderr)  # fmt: skip
    return found


def _found(name: str) -> str:
    """The file itself, or the one of that name in $LOADTRIM_DATA."""
    data = os.environ.get("LOADTRIM_DATA")
    if not Path(name).exists() and data and (Path(data) / name).exists():
        return str(Path(data) / name)
    return name


def _words(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%Y-%m-%d %H:%M} UTC"

"""The commands ``backtest``, ``report`` and ``generate``: where their data comes from and where their results go."""

from __future__ import annotations

import argparse
import datetime
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

from loadtrim_agent.core.names import control_topic
from loadtrim_spark.backtest import METHODS, Score, backtested
from loadtrim_spark.baselines import baselines
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.generate import arrivals, as_records, as_source, reports
from loadtrim_spark.history import Tables, open_tables, take_in
from loadtrim_spark.learn import Calendar
from loadtrim_spark.replay import Played, Setup, played, whole_topics
from loadtrim_spark.report import page
from loadtrim_spark.session import session
from loadtrim_spark.source import Source
from loadtrim_spark.sources import Study, generated, recorded, remembered, summed_days
from loadtrim_spark.story import Period, gather
from loadtrim_spark.truth import SCENARIOS

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_studies"]

DAY_SECONDS = 86_400
MINUTE_SECONDS = 60
JUDGED_DAYS = 28
REPORT_DAYS = 7


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
    source.add_argument("--group", help="only this group of the history (default: all of them)")
    source.add_argument("--trace", metavar="FILE", help="instead of the history a CSV of time and count")
    source.add_argument("--generated", choices=sorted(SCENARIOS), help="instead of the history a generated load")
    add.add_argument("--from", dest="begin", type=_day, metavar="DATE",
                     help=f"first origin (default: {JUDGED_DAYS} days before the end)")  # fmt: skip
    add.add_argument("--to", dest="end", type=_day, metavar="DATE", help="end of what is judged (default: of the data)")
    add.add_argument("--every-days", type=_count, default=1, metavar="N", help="learn every N days (default: 1)")
    _add_calendar(add)
    play = add.add_argument_group(
        "what baselines are worth: the last days once with and once without, in the simulator"
    )
    play.add_argument("--play", type=_count, metavar="N", help="play the last N days (some 10 minutes a day, twice)")
    play.add_argument("--sla", type=float, default=5.0, metavar="S", help="the objective, seconds (default: 5)")
    play.add_argument("--share", type=float, default=0.999, metavar="P", help="of the records (default: 0.999)")
    play.add_argument("--startup", type=float, default=60.0, metavar="S", help="of a replica, seconds (default: 60)")
    play.add_argument("--peak-replicas", type=float, default=5.0, metavar="N",
                      help="what the busiest second of a recorded load is worth (default: 5)")  # fmt: skip
    add.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add.set_defaults(run=_backtest)


def _backtest(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    study = _study(args, spark, tables)
    newest = study.days.agg(F.max("start")).first()
    if newest is None or newest[0] is None:
        print("there is nothing to judge by yet", file=sys.stderr)
        return
    until = newest[0] + study.bucket_seconds
    end = min(_at(args.end, study.zone), until) if args.end else _midnight(until, study.zone)
    begin = _at(args.begin, study.zone) if args.begin else end - JUDGED_DAYS * DAY_SECONDS
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
    bucket = args.bucket_minutes * MINUTE_SECONDS
    if args.generated:
        return generated(spark, args.generated, bucket)
    if args.trace:
        return recorded(spark, _found(args.trace), bucket, args.time_zone)
    return remembered(spark, tables, args.group, bucket, args.time_zone)


def _played_days(args: argparse.Namespace, study: Study, end: int) -> list[dict[str, Any]]:
    """Play the last days, each with what would have been published at its midnight."""
    setup = Setup(objective_seconds=args.sla, objective_share=args.share, startup_seconds=args.startup,
                  peak_replicas=args.peak_replicas)  # fmt: skip
    days = []
    for begin in range(end - (args.play or 0) * DAY_SECONDS, end, DAY_SECONDS):
        load = study.load(begin, DAY_SECONDS)
        calendar = Calendar(begin, study.zone, study.bucket_seconds, args.weeks)
        known = study.days.where(F.col("start") + study.bucket_seconds <= begin)
        values = [row["value"] for row in baselines(known, calendar).where("key not like '%null,null]'").collect()]
        with_them, without = played(load, begin, whole_topics(values), setup, _progress(begin))
        days.append({"begin": begin, "with": asdict(with_them), "without": asdict(without)})
        if not args.json:
            print("\n".join(["", *_beside(begin, with_them, without)]), flush=True)
    return days


def _beside(begin: int, with_them: Played, without: Played) -> list[str]:
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
    return lambda second: print(f"\r{_words(begin + second)} \x1b[K", end="\r", file=sys.stderr, flush=True)


def _table(found: Sequence[Score], begin: int, end: int) -> list[str]:
    """A block per topic: a line per method, coverage and loss per quantile, loss beside seasonal-naive's."""
    lines = [f"{_words(begin)} to {_words(end)}; coverage / pinball loss of p50, p90, p99"]
    for group, topic in sorted({(score.group, score.topic) for score in found}):
        own = [score for score in found if (score.group, score.topic) == (group, topic)]
        lines += ["", f"{group} {topic}: {own[0].minutes:,} minutes"]
        naive = _loss(own, "seasonal_naive")
        for method in METHODS:
            cells = [f"{s.coverage:7.2%} / {s.pinball:.4f}" for s in own if s.method == method]
            beside = f"{_loss(own, method) / naive - 1:+7.1%}" if naive else ""
            lines.append(f"  {method:15} {'   '.join(cells)}   sum {_loss(own, method):.4f} {beside}")
    return lines if found else [*lines, "", "no topic has a week to learn from before that"]


def _loss(own: Sequence[Score], method: str) -> float:
    return sum(score.pinball for score in own if score.method == method)


# -- report


def _add_report(commands: SubParsers, common: argparse.ArgumentParser) -> None:
    add = commands.add_parser(
        "report", parents=[common], help="a page with plots: what came, what it took, what was late"
    )
    add.add_argument("--group", help="only this group (default: the busiest)")
    add.add_argument("--days", type=float, default=REPORT_DAYS, help="how far back from the newest record (default: "
                     "%(default)s)")  # fmt: skip
    add.add_argument("--output", type=Path, default=Path("loadtrim-report.html"), metavar="FILE",
                     help="where to (default: %(default)s)")  # fmt: skip
    _add_calendar(add)
    add.set_defaults(run=_report)


def _report(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    bucket = args.bucket_minutes * MINUTE_SECONDS
    days = summed_days(spark, tables, bucket)
    days = days.where(F.col("group") == args.group) if args.group else days
    history = spark.read.format("delta").load(tables.history)
    history = history.where(F.col("group") == args.group) if args.group else history
    newest = history.agg(F.max("at")).first()
    if newest is None or newest[0] is None:
        print(f"the history in {tables.root} has nothing to tell of yet: no page was written", file=sys.stderr)
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
    add.add_argument("--scenario", choices=sorted(SCENARIOS), default="steep")
    add.add_argument("--group", default="generated", help="its name (default: %(default)s)")
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
    parser.add_argument("--bucket-minutes", type=int, choices=(5, 10, 15, 20, 30, 60), default=15)
    parser.add_argument("--weeks", type=int, default=6, help="how far back to learn from (default: %(default)s)")
    parser.add_argument("--time-zone", type=_zone, default=os.environ.get("LOADTRIM_TIME_ZONE", "UTC"),
                        help="whose days and weeks (default: $LOADTRIM_TIME_ZONE, else UTC)")  # fmt: skip


def _found(name: str) -> str:
    """The file itself, or the one of that name in $LOADTRIM_DATA."""
    data = os.environ.get("LOADTRIM_DATA")
    if not Path(name).exists() and data and (Path(data) / name).exists():
        return str(Path(data) / name)
    return name


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on")
    return int(text)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a date like 2026-11-23") from None


def _zone(text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r}: an IANA name like Europe/Berlin") from None
    return text


def _at(day: datetime.date, zone: str) -> int:
    return int(datetime.datetime.combine(day, datetime.time(), zoneinfo.ZoneInfo(zone)).timestamp())


def _midnight(at: int, zone: str) -> int:
    """The last one."""
    return _at(datetime.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(zone)).date(), zone)


def _words(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%Y-%m-%d %H:%M} UTC"

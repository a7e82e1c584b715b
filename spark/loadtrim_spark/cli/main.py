"""``python -m loadtrim_spark COMMAND``, also under ``spark-submit``. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from loadtrim_agent.wire.topic_names import BASELINE_TOPIC
from loadtrim_spark.cli.flags import add_calendar, days_kept, directory, group_id, pair, period, positive
from loadtrim_spark.cli.studies import add_studies
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, explained
from loadtrim_spark.learning.days import MINUTE_SECONDS
from loadtrim_spark.pipeline.baselines import BUCKET_SECONDS, publish, withdraw
from loadtrim_spark.pipeline.history import Tables, compact, delete_group, forget, is_table
from loadtrim_spark.pipeline.ingest import LATE_SECONDS, backfill, ingest
from loadtrim_spark.pipeline.source import Source
from loadtrim_spark.session import session

__all__ = ["main"]

DESCRIPTION = """\
Telemetry of loadtrim's groups becomes a history (Delta tables below --state), the history becomes baselines: what each
group's leader is to expect. Usual: `ingest` every few minutes or with --every for ever, `baselines` and `compact` once
a day. Every command can be started again at any time: nothing is written twice or lost."""
EPILOG = """\
exit codes: 0 done (also when there is nothing to do), 1 failed (the reason on stderr), 2 wrong use.

examples:
  python -m loadtrim_spark ingest --bootstrap kafka:9092 --state s3a://data/loadtrim
  python -m loadtrim_spark baselines --bootstrap kafka:9092 --state s3a://data/loadtrim --time-zone Europe/Berlin
  */10 * * * *  python -m loadtrim_spark ingest ...       (cron; docs/spark.md: Airflow, spark-submit, rights)"""

Commands = Any  # argparse's own type has no public name


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
        args.check(args)
    except SystemExit as end:
        return int(end.code or 0)
    tables = Tables(args.state.rstrip("/"))
    try:
        args.run(args, Source(args.bootstrap, dict(args.kafka_option)), tables)
    except (PipelineError, *JAVA_ERRORS) as error:
        if args.verbose:
            traceback.print_exc()
        told = error if isinstance(error, PipelineError) else explained(error, tables.root, args.bootstrap)
        print(f"loadtrim_spark: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("loadtrim_spark: interrupted; starting again goes on where it stopped", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtrim_spark", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(check=lambda _: None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    common = _common()
    for add in (_add_ingest, _add_baselines, _add_backfill, _add_delete, _add_compact):
        add(commands, common)
    add_studies(commands, common)
    return parser


def _add_ingest(commands: Commands, common: argparse.ArgumentParser) -> None:
    add = _command(commands, common, "ingest", _ingest, "read new telemetry of all groups into the history")
    add.add_argument("--every", type=period, metavar="SECONDS",
                     help="go on for ever, a batch this often (default: end when all there is was read)")  # fmt: skip
    _add_late(add)


def _add_baselines(commands: Commands, common: argparse.ArgumentParser) -> None:
    add = _command(commands, common, "baselines", _baselines, "learn what to expect, and publish it")
    add_calendar(add, BUCKET_SECONDS // MINUTE_SECONDS, "%(default)s")
    add.add_argument("--topic", default=os.environ.get("LOADTRIM_BASELINE_TOPIC", BASELINE_TOPIC),
                     help="where to publish (default: $LOADTRIM_BASELINE_TOPIC, else %(default)s)")  # fmt: skip


def _add_backfill(commands: Commands, common: argparse.ArgumentParser) -> None:
    add = _command(commands, common, "backfill", _backfill, "read again what Kafka still holds of one group")
    add.add_argument("--group", type=group_id, required=True, help="the consumer group's id")
    _add_late(add)


def _add_delete(commands: Commands, common: argparse.ArgumentParser) -> None:
    add = _command(commands, common, "delete", _delete, "remove one group: history, quarantine, published baselines")
    add.add_argument("--group", type=group_id, required=True, help="the consumer group's id")


def _add_compact(commands: Commands, common: argparse.ArgumentParser) -> None:
    add = _command(commands, common, "compact", _compact, "put the small files of closed days together")
    add.add_argument("--keep-days", type=days_kept, metavar="DAYS",
                     help="remove older days from the history first; baselines look back --weeks, backtest further "
                     "(default: keep all)")  # fmt: skip


def _command(
    commands: Commands, common: argparse.ArgumentParser, name: str,
    run: Callable[[argparse.Namespace, Source, Tables], None], does: str,
) -> argparse.ArgumentParser:  # fmt: skip
    parser: argparse.ArgumentParser = commands.add_parser(name, parents=[common], help=does, description=does)
    parser.set_defaults(run=run)
    return parser


def _common() -> argparse.ArgumentParser:
    env = os.environ
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--bootstrap", metavar="HOST:PORT,...", default=env.get("KAFKA_BOOTSTRAP", "localhost:9092"),
                        help="the cluster's brokers (default: $KAFKA_BOOTSTRAP, else localhost:9092)")  # fmt: skip
    common.add_argument("--kafka-option", metavar="NAME=VALUE", action="append", default=[], type=pair,
                        help="a setting of Kafka's Java client (TLS, SASL), as often as needed")  # fmt: skip
    common.add_argument("--state", metavar="DIR", type=directory,
                        default=env.get("LOADTRIM_SPARK_STATE", "loadtrim-history"),
                        help="where the tables and the checkpoint are: a directory, or a URL of a file system that "
                        "Spark knows (default: $LOADTRIM_SPARK_STATE, else loadtrim-history)")  # fmt: skip
    common.add_argument("--master", metavar="URL", default=env.get("LOADTRIM_SPARK_MASTER", "local[*]"),
                        help="Spark's master where spark-submit does not say it "
                        "(default: $LOADTRIM_SPARK_MASTER, else %(default)s)")  # fmt: skip
    common.add_argument("--memory", default=env.get("LOADTRIM_SPARK_MEMORY", "1g"),
                        help="of the driver where spark-submit does not say it "
                        "(default: $LOADTRIM_SPARK_MEMORY, else %(default)s)")  # fmt: skip
    common.add_argument("--verbose", action="store_true", help="print the whole of an error, Java's part included")
    return common


def _add_late(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--late", type=positive, metavar="SECONDS", default=LATE_SECONDS,
                        help="records that reached the broker later than this after their own time are quarantined "
                        "(default: %(default)s)")  # fmt: skip


def _ingest(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    print(ingest(session(args.master, args.memory), source, tables, every_seconds=args.every, late_seconds=args.late))


def _backfill(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    print(backfill(session(args.master, args.memory), source, tables, args.group, args.late))


def _baselines(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    publish(session(args.master, args.memory), source, tables, zone=args.time_zone,
            bucket_seconds=args.bucket_minutes * MINUTE_SECONDS, weeks=args.weeks, topic=args.topic)  # fmt: skip


def _delete(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    if not is_table(spark, tables.history):
        print(f"there is no history in {tables.root}: nothing to delete")
        return
    withdrawn = withdraw(spark, source, tables, args.group)
    removed = delete_group(spark, tables, args.group)
    print(f"{removed} records and {withdrawn} published baselines of {args.group} removed")


def _compact(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    today = datetime.datetime.now(datetime.UTC).date()
    if args.keep_days is not None:
        first = today - datetime.timedelta(days=args.keep_days)
        print(f"{forget(spark, tables, first.isoformat())} records from before {first} removed")
    print(f"{compact(spark, tables, today.isoformat())} files put together")

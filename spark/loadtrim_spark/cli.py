"""``python -m loadtrim_spark COMMAND``, also under ``spark-submit``. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence

from loadtrim_agent.core.names import BASELINE_TOPIC
from loadtrim_spark.baselines import publish
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.history import Tables, compact, delete_group, is_table, open_tables
from loadtrim_spark.ingest import LATE_SECONDS, Source, backfill, ingest
from loadtrim_spark.session import session

__all__ = ["main"]

DESCRIPTION = """\
Telemetry of loadtrim's groups becomes a history (Delta tables below --state), the history becomes baselines: what each
group's leader is to expect. Usual: `ingest` every few minutes, `baselines` and `compact` once a day."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
        source = Source(args.bootstrap, dict(_pair(text) for text in args.kafka_option))
    except SystemExit as end:
        return int(end.code or 0)
    except ValueError as error:
        print(f"loadtrim_spark: {error}", file=sys.stderr)
        return 2
    try:
        args.run(args, source, Tables(args.state.rstrip("/")))
    except PipelineError as error:
        print(f"loadtrim_spark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("loadtrim_spark: interrupted; starting again goes on where it stopped", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadtrim_spark", description=DESCRIPTION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    common = _common()
    add = commands.add_parser("ingest", parents=[common], help="read new telemetry of all groups into the history")
    add.add_argument("--every", type=_positive, metavar="SECONDS",
                     help="go on for ever, a batch this often (default: end when all there is was read)")  # fmt: skip
    _add_late(add)
    add.set_defaults(run=_ingest)
    add = commands.add_parser("backfill", parents=[common], help="read again what Kafka still holds of one group")
    add.add_argument("--group", required=True)
    _add_late(add)
    add.set_defaults(run=_backfill)
    add = commands.add_parser("delete", parents=[common], help="remove one group from the history")
    add.add_argument("--group", required=True)
    add.set_defaults(run=_delete)
    add = commands.add_parser("baselines", parents=[common], help="learn what to expect, and publish it")
    add.add_argument("--bucket-minutes", type=int, choices=(5, 10, 15, 20, 30, 60), default=15)
    add.add_argument("--weeks", type=int, default=6, help="how far back to look (default: %(default)s)")
    add.add_argument("--time-zone", default=os.environ.get("LOADTRIM_TIME_ZONE", "UTC"))
    add.add_argument("--topic", default=os.environ.get("LOADTRIM_BASELINE_TOPIC", BASELINE_TOPIC))
    add.set_defaults(run=_baselines)
    add = commands.add_parser("compact", parents=[common], help="put the small files of closed days together")
    add.set_defaults(run=_compact)
    return parser


def _common() -> argparse.ArgumentParser:
    env = os.environ
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--bootstrap", metavar="HOST:PORT,...", default=env.get("KAFKA_BOOTSTRAP", "localhost:9092"),
                        help="the cluster's brokers (default: $KAFKA_BOOTSTRAP, else localhost:9092)")  # fmt: skip
    common.add_argument("--kafka-option", metavar="NAME=VALUE", action="append", default=[],
                        help="a setting of Kafka's Java client (TLS, SASL), as often as needed")  # fmt: skip
    common.add_argument("--state", metavar="DIR", default=env.get("LOADTRIM_SPARK_STATE", "loadtrim-history"),
                        help="where the tables and the checkpoint are: a directory, or a URL of a file system that "
                        "Spark knows (default: $LOADTRIM_SPARK_STATE, else loadtrim-history)")  # fmt: skip
    common.add_argument("--master", metavar="URL", default=env.get("LOADTRIM_SPARK_MASTER", "local[2]"),
                        help="Spark's master where spark-submit does not say it (default: %(default)s)")  # fmt: skip
    common.add_argument("--memory", default=env.get("LOADTRIM_SPARK_MEMORY", "1g"),
                        help="of the driver where spark-submit does not say it (default: %(default)s)")  # fmt: skip
    return common


def _add_late(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--late", type=_positive, metavar="SECONDS", default=LATE_SECONDS,
                        help="records that reached the broker later than this after their own time are quarantined "
                        "(default: %(default)s)")  # fmt: skip


def _ingest(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    batch = ingest(spark, source, tables, every_seconds=args.every, late_seconds=args.late)
    print(f"{batch.accepted} new records, {batch.copies} copies, {batch.quarantined} quarantined")


def _backfill(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    batch = backfill(session(args.master, args.memory), source, tables, args.group, args.late)
    print(f"{batch.accepted} new records, {batch.copies} copies, {batch.quarantined} quarantined")


def _baselines(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    publish(session(args.master, args.memory), source, tables, zone=args.time_zone,
            bucket_seconds=args.bucket_minutes * 60, weeks=args.weeks, topic=args.topic)  # fmt: skip


def _delete(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    if not is_table(spark, tables.history):
        print(f"there is no history in {tables.root}: nothing to delete")
        return
    print(f"{delete_group(spark, tables, args.group)} records of {args.group} removed")


def _compact(args: argparse.Namespace, source: Source, tables: Tables) -> None:
    spark = session(args.master, args.memory)
    open_tables(spark, tables)
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{compact(spark, tables, today.isoformat())} files put together")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--kafka-option {text!r}: give NAME=VALUE, such as security.protocol=SSL")
    return name, value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds above 0")
    return value

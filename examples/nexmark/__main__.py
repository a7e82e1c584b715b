"""A Nexmark query as a real consumer group on a real Kafka, under one of Koper'22's autoscalers.

``python examples/nexmark --query q3 --policy "dhalion_adapted:lag_threshold_seconds=5" --seconds 120``. The load is the
thesis' cosine (recorded where ``LOADTRIM_DATA`` has it), its rates divided by 100: 24 partitions, one burst a second, 8
replicas at first, 1 to 16. What a record takes is filled up with waiting to 100 times what a Taskmanager took for it
(as set in :mod:`nexmark.load`). The whole of it is 140 minutes; ``--seconds`` plays a piece.

Without ``KAFKA_BOOTSTRAP`` a broker is started. Exit codes: 0; 1 something was lost, owned twice or not done; 2 wrong
use; 3 the run failed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.load import LoadRates
from demo.report import Report, render
from demo.run import RunFailedError, RunOptions, check_names, run
from loadtrim.testing import Cluster, LocalKafkaError, any_kafka
from nexmark.events import QUERIES, Generator
from nexmark.load import LOADS, PARTITIONS, RECORD_SCALE, REPLICAS, REPLICAS_MAX, query_load
from nexmark.service import STATELESS, changelog_of, results_of

__all__ = ["SCALE", "main", "run_options"]

SCALE = 100.0
"""Rates of the thesis over rates here."""
OBJECTIVE_SECONDS = 5.0
SERVICE = Path(__file__).with_name("service.py")
OUT = Path("out/nexmark")


def run_options(query: str, policy: str, begin: int, seconds: int | None, bootstrap: str, topic: str) -> RunOptions:
    """What to run, from second ``begin`` of the load on; ``seconds`` None: to its end.

    Raises:
        ValueError: the load has no such piece; the message says how long it is.
    """
    kind = next(each for each in LOADS if each.name == query)
    load, origin = query_load(kind)
    end = load.seconds if seconds is None else begin + seconds
    if not 0 <= begin < end <= load.seconds:
        raise ValueError(
            f"the load has {load.seconds:,} s, and seconds {begin} to {end} are no piece of it, so nothing can be "
            f"played; give --begin 0 to {load.seconds - 1}, and --seconds 1 to as many as follow"
        )
    rates = tuple(rate * RECORD_SCALE / SCALE for rate in load.per_second[begin:end])
    return RunOptions(
        bootstrap=bootstrap,
        topic=topic,
        group=f"nexmark-{uuid.uuid4().hex[:8]}",
        rates=LoadRates(rates, f"{origin}, rates 1:{SCALE:g}, seconds {begin} to {end}"),
        shares=(1.0 / PARTITIONS,) * PARTITIONS,
        directory=OUT / query,
        objective_seconds=OBJECTIVE_SECONDS,
        busy_seconds=SCALE / kind.capacity,
        policy=policy,
        service=SERVICE,
        events=Generator(query, PARTITIONS),
        replicas=REPLICAS,
        replicas_max=REPLICAS_MAX,
        comparable=True,
        env={"NEXMARK_QUERY": query, "LOADTRIM_PACKER": "roundrobin"},
    )


def _make_topics(kafka: Cluster, query: str) -> str:
    topic = kafka.create_topic(partitions=PARTITIONS)
    kafka.create_topic(PARTITIONS, results_of(topic))
    if query not in STATELESS:
        kafka.create_topic(PARTITIONS, changelog_of(topic), config={"cleanup.policy": "compact"})
    return topic


def _played(given: Any) -> Report:
    with any_kafka() as kafka:
        topic = _make_topics(kafka, given.query)
        options = run_options(given.query, given.policy, given.begin, given.seconds, kafka.bootstrap, topic)
        shutil.rmtree(options.directory, ignore_errors=True)
        print(f"Playing {options.rates.records:,} events: {options.rates.source}.", flush=True)
        return asyncio.run(run(options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one query. Returns the exit code (see the module)."""
    parser = argparse.ArgumentParser(prog="examples/nexmark", description=__doc__.splitlines()[0])
    parser.add_argument("--query", choices=QUERIES, default="q1")
    parser.add_argument("--policy", default="ds2_modern_adapted:overprovisioning=0.33", metavar="NAME[:P=V,...]")
    parser.add_argument("--begin", type=int, default=0, metavar="N", help="from this second of the load on (0)")
    parser.add_argument("--seconds", type=int, metavar="N", help="so many of them (to its end, which is at 8400)")
    given = parser.parse_args(arguments)
    try:
        # Wrong use is told before Kafka is started.
        check_names(run_options(given.query, given.policy, given.begin, given.seconds, "", ""))
    except ValueError as error:
        parser.error(str(error))
    try:
        report = _played(given)
    except (RunFailedError, LocalKafkaError) as error:
        print(f"The run failed: {error}", file=sys.stderr)
        return 3
    summary = report.summary
    print(f"\n{render(report)}\n")
    print(
        f"As the thesis counts: latency {summary.latency.mean:.2f} s on average, {summary.replicas_mean:.2f} replicas"
    )
    return 0 if summary.ok else 1


if __name__ == "__main__":
    sys.exit(main())

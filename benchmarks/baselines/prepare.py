"""The weeks before, into Kafka, and from there to baselines, by the pipeline's own commands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from benchmarks.baselines.past import PastWeeks, reports
from benchmarks.baselines.schedule import BUCKET_SECONDS
from loadtrim.testing import create_topic
from loadtrim_agent.kafka.control_log import telemetry_key
from loadtrim_agent.kafka.control_topic import topic_configs
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.topic_names import control_topic

__all__ = ["Pipeline", "StepFailedError", "Written", "fetch_jars", "hand_over", "write_past"]

WHILE_WRITTEN = {
    # Each record keeps its own time, as if the broker had stamped it then. Stamped now, all of it would be weeks late,
    # which is what `ingest` quarantines.
    "message.timestamp.type": "CreateTime",
    # The broker deletes by the records' time, so by the agents' 7 days most of it would go before it was read.
    "retention.ms": "-1",
    "retention.bytes": "-1",
}

BANNERS = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "WARN NativeCodeLoader: Unable to load native-hadoop",
)


class StepFailedError(Exception):
    """A command of the pipeline failed. The message says which; what it said itself was shown."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: records, and bytes of their values."""

    records: int
    size_bytes: int


async def write_past(bootstrap: str, past: PastWeeks) -> Written:
    """Make the group's control topic and write the weeks' reports to it. About 20 s for 100 000 reports.

    Raises:
        aiokafka.errors.KafkaError: the broker refuses something.
    """
    topic = control_topic(past.group)
    await create_topic(bootstrap, topic, 2, config=topic_configs() | WHILE_WRITTEN)
    records = size = 0
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1 << 19, linger_ms=20) as producer:
        answers = []
        for report in reports(past):
            value = encode(report)
            key = telemetry_key(report.group, report.member, report.sequence)
            stamp = round(report.at * 1000)
            answers.append(await producer.send(topic, value, key=key, partition=TELEMETRY, timestamp_ms=stamp))
            records, size = records + 1, size + len(value)
        await producer.flush()
        await asyncio.gather(*answers)  # none of them may have been refused
    return Written(records, size)


async def hand_over(bootstrap: str, group: str) -> None:
    """Give the control topic what the agents would have made it with: the history is read, they come now.

    Above all the broker's own time on every record, by which a member tells how far its clock is off. What is older
    than the retention goes now, as it would have long since.

    Raises:
        aiokafka.errors.KafkaError: the broker refuses it.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        settings = ConfigResource(ConfigResourceType.TOPIC, control_topic(group), configs=topic_configs())
        for answer in await admin.alter_configs([settings]):
            for code, message, *_ in answer.resources:
                if code:
                    raise for_code(code)(message)
    finally:
        await admin.close()


def fetch_jars() -> None:
    """Have Spark's connectors here, by Maven where they are not.

    Raises:
        StepFailedError: they cannot be fetched.
        ModuleNotFoundError: Spark itself is not here.
    """
    from loadtrim_spark.errors import PipelineError
    from loadtrim_spark.session import jars

    try:
        jars()
    except PipelineError as error:
        raise StepFailedError(str(error)) from error


class Pipeline:
    """The pipeline's command line, run as a user would.

    Args:
        bootstrap: the cluster.
        state: where the tables are.
        tell: is given every line.
    """

    def __init__(self, bootstrap: str, state: Path, tell: Callable[[str], None]) -> None:
        self._common = ["--bootstrap", bootstrap, "--state", str(state)]
        self._tell = tell

    def ingest(self) -> float:
        """Read what is there; returns seconds.

        Raises:
            StepFailedError: it ended with another code than 0.
        """
        return self._run(["ingest"])

    def baselines(self, weeks: int) -> float:
        """Learn and publish; returns seconds.

        Raises:
            StepFailedError: as above.
        """
        return self._run(["baselines", "--bucket-minutes", str(BUCKET_SECONDS // 60), "--weeks", str(weeks)])

    def _run(self, command: list[str]) -> float:
        words = ["-m", "loadtrim_spark", *command, *self._common]
        self._tell(f"$ python {' '.join(words)}")
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            env={"SPARK_LOCAL_IP": "127.0.0.1", **os.environ},  # or Spark warns that it has guessed one
        )
        try:
            assert process.stdout is not None
            for line in _said(process.stdout):
                self._tell(f"    {line}")
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code:
            raise StepFailedError(f"`{command[0]}` ended with code {code}; what it said is above")
        return time.monotonic() - begun


def _said(lines: Iterable[str]) -> Iterable[str]:
    """Without empty lines, and without what Java and Spark say at every start."""
    for line in lines:
        text = line.rstrip()
        if text and not any(banner in text for banner in BANNERS):
            yield text

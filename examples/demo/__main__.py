"""The demo: two minutes of a recorded load on a real Kafka, consumers that come and go, and the proof.

``make demo``, or, with the package installed: ``python examples/demo``. Settings, from the environment:

=====================  ===========  ====================================================================
variable               default      meaning
=====================  ===========  ====================================================================
``FULL``               ``0``        ``1``: all 600 seconds of the trace instead of every fifth
``RATES``              (trace)      another load, as ``examples/demo/load.py --rates`` takes it
``PARTITIONS``         ``9``        of the topic
``SHARES``             ``skewed``   two partitions have half the load; ``even``: all have the same
``W``                  ``0.5``      the objective: seconds from a record's timestamp until it is done
``BUSY``               ``0.0059``   seconds that a record takes
``POLICY``             (default)    the leader's policy, as ``LOADTRIM_POLICY``
``REPLICAS``           ``1``        at the start
``STARTUP``            ``0``        seconds added to every start, for machines that take a while to come
``PAYMENTS_CLIENT``    loadtrim     ``aiokafka``: plain consumers, for comparison; nobody scales then
``KAFKA_BOOTSTRAP``    (a new one)  an existing cluster instead of a local one
``LOADTRIM_DATA``      (found)      directory of the recorded trace
``OUT``                ``out``      where report, picture and the run's evidence go
=====================  ===========  ====================================================================

Exit codes: 0; 1 something was lost, owned twice or not done in time; 2 wrong use; 3 the run failed; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.load import parse_rates, shares_even, shares_skewed, trace
from demo.plot import plot
from demo.report import NOT_THE_PAPERS, Report, render
from demo.run import GROUP, RunFailedError, RunOptions, check_names, run
from demo.settings import number
from demo.show import show
from loadtrim.testing import LocalKafka, LocalKafkaError, any_kafka

__all__ = ["main", "run_options"]


def run_options(env: Mapping[str, str], bootstrap: str, topic: str, group: str) -> RunOptions:
    """Read the demo's settings.

    Raises:
        ValueError: one of them cannot be used; the message names it.
    """
    full = env.get("FULL", "0") not in ("", "0")
    partitions = int(number(env, "PARTITIONS", 9, least=1))
    shares = env.get("SHARES", "skewed")
    if shares not in ("skewed", "even"):
        raise ValueError(f"SHARES is {shares!r}; allowed: skewed, even")
    rates = parse_rates(env["RATES"]) if env.get("RATES") else trace(every=1 if full else 5)
    return RunOptions(
        bootstrap=bootstrap,
        topic=topic,
        group=group,
        rates=rates,
        shares=shares_skewed(partitions) if shares == "skewed" else shares_even(partitions),
        directory=Path(env.get("OUT", "out")) / "run",
        objective_seconds=number(env, "W", 0.5, least=0.001),
        busy_seconds=number(env, "BUSY", 0.0059, least=0.0),
        policy=env.get("POLICY", ""),
        client=env.get("PAYMENTS_CLIENT", "loadtrim"),
        replicas=int(number(env, "REPLICAS", 1, least=1)),
        startup_delay_seconds=number(env, "STARTUP", 0.0, least=0.0),
        comparable=bool(env.get("RATES")) or full,
    )


def _demo(env: Mapping[str, str]) -> Report:
    out = Path(env.get("OUT", "out"))
    check_names(run_options(env, "", "", ""))  # wrong use is told before Kafka is started
    shutil.rmtree(out / "run", ignore_errors=True)
    with any_kafka() as kafka:
        own = isinstance(kafka, LocalKafka)
        suffix = "" if own else f"-{uuid.uuid4().hex[:8]}"
        options = run_options(env, kafka.bootstrap, f"payments{suffix}", f"{GROUP}{suffix}")
        kafka.create_topic(len(options.shares), options.topic)
        seconds = len(options.rates.per_second)
        print(f"Playing {options.rates.records:,} records in {seconds} s: {options.rates.source}.", flush=True)
        if not options.comparable:
            print(NOT_THE_PAPERS, flush=True)
        report = asyncio.run(run(options, show))
    (out / "demo.json").write_bytes(report.as_json())
    plot(report, out / "demo.png")
    return report


def main() -> int:
    """Run the demo. Returns the exit code (see the module)."""
    try:
        report = _demo(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except (RunFailedError, LocalKafkaError) as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("Interrupted; everything was stopped.", file=sys.stderr)
        return 130
    out = Path(os.environ.get("OUT", "out"))
    print(f"\n{render(report)}\n\nPicture: {out / 'demo.png'}   numbers: {out / 'demo.json'}   evidence: {out / 'run'}")
    if not report.summary.ok:
        print(f"\nFAILED: records were lost, left over, or a partition had two owners.\n{report.verdict}")
    return 0 if report.summary.ok else 1


if __name__ == "__main__":
    sys.exit(main())

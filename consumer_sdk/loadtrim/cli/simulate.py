"""``loadtrim simulate``: what would this policy have done under this load?"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loadtrim.errors import EXIT_DONE, CommandError, UsageError
from loadtrim.observer.connection import add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.simulate import (
    PROTOCOLS,
    BaselineRecord,
    Costs,
    Load,
    Machines,
    Options,
    Outcome,
    PlanConfig,
    Simulation,
    WrongLoadError,
    parse_costs,
    parse_generator,
    parse_moment,
    protocol_of,
    read_baselines,
    shares_even,
    shares_skewed,
    summary_of,
)
from loadtrim.simulate.loads.amounts import Quantity
from loadtrim.simulate.loads.generators import GENERATORS, SHARE_GENERATORS, generator_lines
from loadtrim.simulate.loads.load import ARRIVALS, check_known, check_partitions
from loadtrim.simulate.loads.readers import load_of_reports, read_load
from loadtrim.simulate.loads.reading import PARTITIONS_DEFAULT, Reading, check_applies
from loadtrim.simulate.loads.tables import is_number
from loadtrim.simulate.model.work import FETCH_SECONDS
from loadtrim.simulate.report.plot import check_plot, draw
from loadtrim.simulate.study.fixed_group import replicas_at_first, seconds_until_joined
from loadtrim.simulate.study.price import parse_price
from loadtrim_agent.common.naming import UnknownNameError, nearest
from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.planning.placement.problem import LoadError
from loadtrim_agent.planning.registry import PACKERS, POLICIES
from loadtrim_agent.wire.telemetry_records import ReportRecord

from .simulate_output import head_lines, json_of, text_lines, wrapped
from .simulate_study import study_lines, study_of
from .simulate_task import PolicyResult, Task

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]

COST_DEFAULT = Costs(mean_seconds=0.005)
SHARES: dict[str, Callable[[int], tuple[float, ...]]] = {"even": shares_even, "skewed": shares_skewed}
PAST_SECONDS = 3600.0
PROGRESS_SECONDS = 0.1
"""Between two lines of progress."""
TOLD = {
    *(
        "load",
        "group",
        "partitions",
        "arrivals",
        "values",
        "policy",
        "packer",
        "sla",
        "share",
        "cost",
        "startup",
        "protocol",
    ),
    *("slicing", "baselines", "seeds", "json", "curves", "decisions", "plot", "price", "advice"),
}
"""Arguments that the head or the table tells, and those that change only what is shown."""
REFUSED = (WrongLoadError, UnknownNameError, LoadError, ValueError)
"""The wrong argument, in words."""
EXAMPLES = """
examples:
  loadtrim simulate step:before=50,after=300,at=60,seconds=180 --cost 5ms --sla 0.5
  loadtrim simulate trace.csv --partitions 5 --policy objective --policy closer24:mu=200/least_loaded --seeds 5
  loadtrim simulate export.csv --partitions 8 --cost 20ms --startup 20 --price 0.12
  loadtrim simulate trace.csv.gz --speed-up 60 --protocol cooperative --plot out.png
  loadtrim simulate --group payments-service --past 7200 --policy objective --sla 0.5
"""


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``simulate`` to the command line."""
    parser = subparsers.add_parser(
        "simulate",
        help="play a recorded or given load against policies",
        description="Plays a load against a simulated group, record by record in virtual time, with the planner that "
        "runs in the agent. Several --policy are compared side by side on the same load.",
        epilog="generators (any parameter may be left out; noise=SHARE,seed=N can be added to those with a rate):\n  "
        + "\n  ".join(generator_lines())
        + "\n"
        + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_load(parser)
    _add_group(parser)
    _add_output(parser)
    add_arguments(parser)
    parser.set_defaults(run=run)


def _add_load(parser: argparse.ArgumentParser) -> None:
    load = parser.add_argument_group("load")
    load.add_argument(
        "load",
        nargs="?",
        metavar="LOAD",
        help="a file (CSV, JSON or Parquet of time, partition, records or bytes; an export of Prometheus or Grafana; a "
        "paper's trace; a control topic's telemetry as JSON lines), or a generator, see below",
    )
    load.add_argument("--group", metavar="GROUP", help="instead of LOAD: what this group's telemetry tells arrived")
    load.add_argument("--past", type=float, metavar="S", help=f"with --group: of the last S seconds ({PAST_SECONDS:g})")
    load.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="deal the total out over N partitions (default: those that the load names, else 9)",
    )
    load.add_argument(
        "--shares",
        metavar="SHARES",
        help="each partition's share: even, skewed (half the load on the first two), or numbers like 0.5,0.3,0.2",
    )
    load.add_argument("--keys", choices=("random", "fixed"), help="records fall by chance, or in exact shares")
    load.add_argument(
        "--arrivals",
        choices=ARRIVALS,
        help="in each second (default: poisson for tables, recorded where they tell moments within it; even for "
        "telemetry and Landau'24's streams; burst, all together, for generators and Koper'22's traces)",
    )
    load.add_argument("--scale", type=float, metavar="F", help="F times the load")
    load.add_argument("--speed-up", type=float, metavar="F", help="recorded times run F times as fast")
    load.add_argument("--begin", type=int, default=0, metavar="S", help="play from second S on")
    load.add_argument("--seconds", type=int, metavar="S", help="play S seconds of it")
    load.add_argument(
        "--values",
        choices=[quantity.value for quantity in Quantity],
        help="what the numbers of a table count: records per second, records in each row's time, or records since some "
        "beginning (default: by the column's name, its unit or its fractions; the second line that is printed says "
        "which)",
    )
    load.add_argument("--record-bytes", type=float, metavar="B", help="size of a record, for files that tell bytes")
    load.add_argument(
        "--capacity", type=float, metavar="R", help="files of Landau'24's streams: records/s at 100 %% (100)"
    )
    load.add_argument("--interval", type=float, metavar="S", help="files of Landau'24's streams: seconds a row (30)")


def _add_group(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("group")
    group.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:P=V,...][/PACKER]",
        help=f"may be given several times: {', '.join(sorted(POLICIES))} (default: objective)",
    )
    group.add_argument("--packer", default=DEFAULTS.packer, metavar="NAME", help=f"{', '.join(sorted(PACKERS))} (trim)")
    group.add_argument(
        "--sla", type=_time, default=DEFAULTS.sla_seconds, metavar="S", help="the objective, like 0.5 or 500ms (1)"
    )
    group.add_argument(
        "--share", type=float, default=DEFAULTS.sla_share, metavar="P", help="of the records to be in time (0.999)"
    )
    group.add_argument(
        "--cost",
        metavar="COST",
        help="of a record: 5ms, exponential:5ms, lognormal:5ms,0.8 or measured:FILE "
        "with seconds, one a line (default: what the load tells, else 5ms)",
    )
    group.add_argument(
        "--speeds", default="1", metavar="F,...", help="of members as they are started, over and over (1)"
    )
    group.add_argument(
        "--concurrency", type=int, default=1, metavar="N", help="partitions a member works on at once (1)"
    )
    group.add_argument("--replicas", type=int, metavar="N", help="at the start (what the first seconds take)")
    group.add_argument("--min", type=int, default=DEFAULTS.min_replicas, metavar="N", help="fewest replicas (1)")
    group.add_argument("--max", type=int, metavar="N", help="most replicas (the number of partitions)")
    group.add_argument("--startup", type=_time, default=1.0, metavar="S", help="from request to ready, like 20s (1)")
    group.add_argument(
        "--fetch",
        type=float,
        default=FETCH_SECONDS,
        metavar="S",
        help="from a record's time stamp until its owner has it, seconds (0.003); a group that is there tells "
        "`arrival_delay` in its reports",
    )
    group.add_argument(
        "--protocol",
        default="loadtrim",
        metavar="NAME",
        help=f"of handoffs: {', '.join(sorted(PROTOCOLS))} (loadtrim)",
    )
    group.add_argument(
        "--heartbeat", type=float, metavar="S", help="of Kafka's protocols (eager, cooperative 3, kip848 5)"
    )
    group.add_argument(
        "--slicing", action="store_true", help="members pass work on inside the objective, on their own initiative"
    )
    group.add_argument(
        "--baselines",
        type=Path,
        metavar="FILE",
        help="what the history expects: values of the baseline topic, one a line; needs --begins-at",
    )
    group.add_argument(
        "--begins-at",
        metavar="TIME",
        help="when the first second that is played was: seconds since the epoch, or 2024-05-01T12:30:00+02:00 "
        "(UTC where it says no zone)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("runs and output")
    output.add_argument("--seed", type=int, default=1, metavar="N", help="of everything that is random (1)")
    output.add_argument("--seeds", type=int, default=1, metavar="N", help="so many runs, with seeds from --seed on (1)")
    output.add_argument(
        "--price",
        metavar="PRICE",
        help="of a replica for an hour, like 0.12 or 0.12EUR: tells what each policy costs, and the fewest fixed "
        "replicas that hold the share",
    )
    output.add_argument(
        "--no-advice",
        dest="advice",
        action="store_false",
        help="where no policy holds the share, do not play what would",
    )
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--curves", action="store_true", help="with --json: the first seed's curves too")
    output.add_argument(
        "--decisions",
        action="store_true",
        help="print the first seed's decisions that wanted another number of replicas or moved something, with reasons",
    )
    output.add_argument("--plot", type=Path, metavar="FILE", help="draw the first seed's runs (.png, .svg, .pdf)")


def run(args: argparse.Namespace) -> int:
    """Play, compare, print; returns the exit code."""
    # With a thousand partitions this takes a minute.
    _show("reading the load, and looking for the group that fits its first seconds")
    try:
        task = _task(args)
    except REFUSED as error:
        raise _refused(error, "Nothing was played.") from error
    finally:
        _clear()
    if not args.json:
        print("\n".join(head_lines(task)), flush=True)
    try:
        runs = [_played(task.load, config, task.options, args) for config in task.configs]
    except REFUSED as error:
        raise _refused(error, "The run ended there, so there are no figures of it.") from error
    # Printed before more is played or drawn: what took minutes is not to be lost for a plot.
    if not args.json:
        print("\n".join(text_lines(task, runs, decisions=args.decisions)), flush=True)
    study = study_of(task, runs, advice=args.advice, progress=_tell)
    _clear()
    if args.json:
        print(json_of(task, runs, study, curves=args.curves, decisions=args.decisions), flush=True)
    elif lines := study_lines(task, runs, study):
        print("\n".join(["", *wrapped(lines)]), flush=True)
    if args.plot is not None:
        _draw(args.plot, task, runs)
    return EXIT_DONE


def _refused(error: Exception, means: str) -> UsageError:
    return UsageError(str(error), means, "What can be given: loadtrim simulate --help.")


def _task(args: argparse.Namespace) -> Task:
    """Return what is to be played; whatever can be refused is refused here, before anything was played for minutes."""
    _check(args)
    load = _load(args)
    options = _options(args, load)
    configs = [_config(args, choice) for choice in args.policy or [DEFAULTS.policy]]
    for config in configs:
        Simulation(load.part(0, 1), config, options)
    arguments = _arguments(args)
    notes = [*load.notes, *_too_large(load, options)]
    notes += [] if load.records > 0.0 else ["no record arrives in what is played, so there is nothing to be late"]
    price = None if args.price is None else parse_price(args.price)
    if args.replicas is None:
        options = replace(options, replicas=replicas_at_first(load, configs[0], options))
    return Task(load, options, configs, notes, arguments, _others(arguments), price)


def _defaults() -> dict[str, Any]:
    """Of every argument that makes a run what it is."""
    parser = argparse.ArgumentParser()
    for add in (_add_load, _add_group, _add_output):
        add(parser)
    return vars(parser.parse_args([]))


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in _defaults()}


def _others(arguments: Mapping[str, Any]) -> list[str]:
    """Return what was given and the head does not tell otherwise, as it can be given again."""
    return [
        f"--{name.replace('_', '-')} {shlex.quote(str(arguments[name]))}"
        for name, default in _defaults().items()
        if arguments[name] != default and name not in TOLD
    ]


def _check(args: argparse.Namespace) -> None:
    """Of the arguments, what is wrong whatever the load is."""
    if args.plot is not None:
        check_plot(args.plot)
    if args.curves and not args.json:
        raise WrongLoadError("--curves goes with --json, and there is no --json; add it, or draw them with --plot.")
    if not 0.0 < args.sla < float("inf"):
        raise WrongLoadError(f"--sla is {args.sla}; the objective must be a finite number of seconds above 0.")
    if not 0.5 <= args.share < 1.0:
        raise WrongLoadError(
            f"--share is {args.share:g}; the share of the records to be in time must be at least 0.5 and below 1."
        )
    if args.seeds < 1:
        raise WrongLoadError(f"--seeds is {args.seeds}; at least one run is needed.")
    if args.min < 1 or (args.max is not None and args.max < args.min):
        most = "" if args.max is None else f" and --max {args.max}"
        raise WrongLoadError(
            f"--min is {args.min}{most} replicas, which no group could keep to; give a --min of at least 1, and a "
            "--max that is no smaller."
        )


def _draw(path: Path, task: Task, runs: Sequence[PolicyResult]) -> None:
    title = f"{task.load.source}, {task.options.costs}"
    try:
        draw(path, [(each.name, each.first) for each in runs], title)
    except WrongLoadError as error:
        again = "The same command with the same --seed plays the same again."
        raise CommandError(str(error), "The figures above are not affected.", again) from error


# -- what is played


def _load(args: argparse.Namespace) -> Load:
    if args.partitions is not None:
        check_partitions(args.partitions)
    load = _source(args)
    if args.shares is not None:
        count = len(load.partitions)
        load = load.dealt(count, _shares(args.shares, count, given=args.partitions is not None))
    if args.scale is not None:
        load = load.scaled(args.scale)
    return replace(load, arrivals=args.arrivals or load.arrivals, keys=args.keys or load.keys)


def _source(args: argparse.Namespace) -> Load:
    if (args.load is None) == (args.group is None):
        raise WrongLoadError("Give a load or --group: a file, a generator, or a group whose telemetry is to be played.")
    _check_group(args)
    reading = Reading(
        partitions=args.partitions,
        record_bytes=args.record_bytes,
        values=None if args.values is None else Quantity(args.values),
        capacity=args.capacity,
        interval=args.interval,
        speed_up=1.0 if args.speed_up is None else args.speed_up,
        begin=args.begin,
        seconds=args.seconds,
    )
    if args.group is not None:
        return load_of_reports(asyncio.run(_reports(args)), f"telemetry of {args.group}", reading)
    name = args.load.partition(":")[0]
    path, generators = Path(args.load), (*GENERATORS, *SHARE_GENERATORS)
    if path.exists() or (name not in generators and ":" not in args.load):
        if not path.exists() and args.load.isidentifier():
            check_known("file or generator", name, generators)
        return read_load(path, reading)
    kind = "a generator, which takes only what stands behind its name"
    check_applies(args.load, kind, args, "speed_up", "capacity", "interval", "record_bytes", "values")
    if name in SHARE_GENERATORS and args.shares is not None:
        raise WrongLoadError(
            f"{args.load}: --shares would undo the partitions' shares that {name} is there to make; leave it out, or "
            "take a generator of a rate alone."
        )
    load = parse_generator(args.load, args.partitions or PARTITIONS_DEFAULT).part(args.begin, args.seconds)
    return replace(load, partitions_assumed=args.partitions is None)


def _check_group(args: argparse.Namespace) -> None:
    if args.past is not None and not 0.0 < args.past < float("inf"):
        raise WrongLoadError(f"--past is {args.past:g}; it must be a finite number of seconds above 0.")
    for name in ("past", "bootstrap", "config") if args.group is None else ():
        if getattr(args, name) is not None:
            raise WrongLoadError(f"--{name} is for the telemetry of a --group, and there is none; leave it out.")


async def _reports(args: argparse.Namespace) -> list[ReportRecord]:
    async with ControlTopic(connection_from(args), args.group) as topic:
        recent = await topic.recent(PAST_SECONDS if args.past is None else args.past, scan_seconds=0)
    records = [entry.record for entry in recent.telemetry]
    return [each for each in records if isinstance(each, ReportRecord) and each.group == args.group]


def _shares(text: str, partitions: int, *, given: bool) -> tuple[float, ...]:
    if text in SHARES:
        return SHARES[text](partitions)
    if not any(is_number(part) for part in text.split(",")):
        raise WrongLoadError(
            f"--shares {text!r} is no way to share, so it is not known what a partition gets; choose one of "
            f"{', '.join(SHARES)} (the nearest is {nearest(text, SHARES)!r}), or give {partitions} numbers with commas "
            "between them."
        )
    weights = _numbers("--shares", text)
    total = sum(weights)
    if len(weights) != partitions or min(weights) < 0 or not 0 < total < float("inf"):
        other = f" Or give --partitions {len(weights)}." if len(weights) != partitions and not given else ""
        raise WrongLoadError(
            f"--shares {text!r} must be even, skewed, or {partitions} numbers, none below 0, that are not all 0.{other}"
        )
    return tuple(weight / total for weight in weights)


def _time(text: str) -> float:
    """Return seconds; a unit may follow, as it may in a cost."""
    number, factor = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    if not is_number(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it like 0.5, 0.5s or 500ms")
    return float(number) * factor


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise WrongLoadError(f"{name} {text!r} must be numbers with commas between them.") from None


def _options(args: argparse.Namespace, load: Load) -> Options:
    known = Costs(mean_seconds=load.cost_seconds) if load.cost_seconds else COST_DEFAULT
    protocol = protocol_of(args.protocol)
    if args.heartbeat is not None:
        if not protocol.rebalances:
            raise WrongLoadError(
                f"--heartbeat is for Kafka's protocols, and {protocol.name!r} waits for no heartbeat; leave it out."
            )
        protocol = replace(protocol, heartbeat_seconds=args.heartbeat)
    return Options(
        seed=args.seed,
        costs=known if args.cost is None else parse_costs(args.cost),
        machines=Machines(
            speeds=tuple(_numbers("--speeds", args.speeds)), concurrency=args.concurrency, fetch_seconds=args.fetch
        ),
        startup_seconds=args.startup,
        replicas=1 if args.replicas is None else args.replicas,
        protocol=protocol,
        slicing=args.slicing,
        begins_at=None if args.begins_at is None else parse_moment(args.begins_at),
        baselines=_baselines(args, load),
    )


def _baselines(args: argparse.Namespace, load: Load) -> tuple[BaselineRecord, ...]:
    """Return the baselines of the file, of which one at least has to be about the load."""
    if args.baselines is None:
        return ()
    found = read_baselines(args.baselines)
    topics = sorted({partition.topic for partition in load.partitions})
    if not any(record.topic in topics for record in found):
        told = ", ".join(sorted(record.topic for record in found)[:5])
        raise WrongLoadError(
            f"{args.baselines} is about {told}, and the load is of {', '.join(topics[:5])}, so nothing would be "
            "expected of it; give the load's topic its name (a column 'topic'), or the baseline the load's."
        )
    return found


def _config(args: argparse.Namespace, choice: str) -> PlanConfig:
    policy, _, packer = choice.partition("/")
    return PlanConfig(
        group="simulated",
        sla_seconds=args.sla,
        sla_share=args.share,
        min_replicas=args.min,
        max_replicas=args.max,
        policy=policy,
        packer=packer or args.packer,
        startup_seconds=args.startup,
    )


def _too_large(load: Load, options: Options) -> list[str]:
    """Return what no number of replicas can keep in time: said before, so that nobody blames a policy for it."""
    fastest = max(options.machines.speeds)
    found = []
    for index, partition in enumerate(load.partitions):
        most = max(rate * load.row(second)[index] for second, rate in enumerate(load.per_second))
        needs = most * options.costs.mean_seconds / fastest
        if needs > 1.0:
            found.append(f"{partition} ({needs:.2f} members at its peak)")
    if not found:
        return []
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return [
        "larger than the fastest member, which only one may read at a time, so that replicas cannot help: "
        + ", ".join(found[:5])
        + more
    ]


# -- playing


def _played(load: Load, config: PlanConfig, options: Options, args: argparse.Namespace) -> PolicyResult:
    outcomes: list[Outcome] = []
    seeds = list(range(options.seed, options.seed + args.seeds))
    for seed in seeds:
        progress = _progress(f"{config.policy}, seed {seed}", load.seconds)
        outcomes.append(Simulation(load, config, replace(options, seed=seed), progress).run())
    _clear()
    summary = summary_of(
        outcomes,
        policy=config.policy,
        packer=config.packer,
        protocol=options.protocol.name,
        slicing=options.slicing,
        seeds=seeds,
    )
    worst = min(range(len(seeds)), key=lambda at: outcomes[at].share_in_time)
    since = seconds_until_joined(config, options)
    shares = [outcome.share_in_time_from(since) for outcome in outcomes if outcome.arrived_from(since)]
    later = fmean(shares) if shares else None
    return PolicyResult(
        f"{config.policy}/{config.packer}", config, summary, outcomes[0], outcomes[worst], seeds[worst], later
    )


def _progress(what: str, seconds: int) -> Callable[[int], None]:
    shown = -PROGRESS_SECONDS

    def show(second: int) -> None:
        nonlocal shown
        if (now := time.monotonic()) - shown >= PROGRESS_SECONDS:
            shown = now
            _show(f"{what}: {second} of {seconds} s")

    return show


def _tell(what: str) -> None:
    _show(f"playing {what}")


def _clear() -> None:
    _show("")


def _show(text: str) -> None:
    """Show what goes on, in place of what was shown before, where a person looks on."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

"""The comparison: who is in it, what it counts, and that it goes on where it ended."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from benchmarks.compare import datasets, runs
from benchmarks.compare.__main__ import _parsed, jobs_of
from benchmarks.compare.page import origins, packers, page, summary, table
from benchmarks.compare.runs import (
    CHOICES,
    STARTUPS,
    Choice,
    ComparisonJob,
    ComparisonResult,
    config_of,
    digest,
    grouped,
    late_alone,
    play,
    play_all,
)
from benchmarks.compare.scenarios import OTHERS, SCENARIOS, Scenario, scenario_of
from benchmarks.compare.targets import RANGE_SEEDS, RANGED, TargetVerdict, extra_jobs, on_front, rivals, verdicts
from msgspec import structs

from demo.datasets import LANDAU_NAME, TAXI_NAME, WORLD_CUP_NAME
from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate
from loadtrim_agent.common.naming import parse_choice
from loadtrim_agent.planning.registry import PACKERS, POLICIES

RESULT = ComparisonResult(
    job=ComparisonJob(scene="spike", choice="objective", startup_seconds=1.0),
    code="",
    records=1000,
    left=0,
    share=0.99,
    share_after=0.99,
    replica_minutes=10.0,
    replicas_mean=2.0,
    replicas_max=3,
    moves=4,
    slices=0,
    scalings=2,
    scalings_after=0,
    p99=0.4,
    longest=1.0,
    alone=0,
    cpu_seconds=1.0,
)

PLAYED = ("world-cup", "taxi", "landau")
QUICKLY_MADE = ("ramp", "steps", "spike", "trace", "landau", "long", "iccbdc22")
MATCH = {29: ((0, 50), (1, 500)), 30: ((0, 100), (1, 400))}
"""Requests per minute of two days, the second of which is played."""


def result(
    choice: str, share: float, minutes: float, startup: float = 1.0, scene: str = "spike", seed: int = 1
) -> ComparisonResult:
    job = ComparisonJob(scene=scene, choice=choice, startup_seconds=startup, seed=seed)
    return msgspec.structs.replace(RESULT, job=job, share=share, replica_minutes=minutes)


def test_every_policy_and_only_known_packers_are_compared() -> None:
    scene = scenario_of("steps")
    assert {parse_choice(choice.policy_for(scene))[0] for choice in CHOICES} == set(POLICIES)
    assert {choice.packer for choice in CHOICES} <= set(PACKERS)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICKLY_MADE else pytest.param(name, marks=pytest.mark.slow) for name in (*SCENARIOS, *OTHERS)],
)
def test_every_load_can_be_made_and_begins_with_what_it_takes(name: str) -> None:
    scene = scenario_of(name)
    assert scene.load.seconds >= 60
    assert scene.replicas * scene.worth >= min(scene.load.per_second[0], len(scene.load.partitions) * scene.worth)
    assert scenario_of(name, True).load.seconds == 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_late_alone_is_what_a_replica_for_every_partition_cannot_save(seed: int) -> None:
    """Beside a simulation that has them all from the start: the same records are late."""
    rate = random.Random(seed).uniform(150.0, 400.0)
    load = parse_generator(f"constant:rate={rate},seconds=30,noise=0.5,seed={seed}", 3)
    config = PlanConfig(sla_seconds=0.5, policy="fixed:replicas=3", packer="roundrobin")
    options = Options(seed=seed, costs=Costs(mean_seconds=0.0059), replicas=3)
    outcome = simulate(load, config, options)
    assert outcome.moves == 0
    assert late_alone(load, 0.0059, 0.5, seed) == outcome.arrived - outcome.in_time


def test_the_front_is_what_nobody_beats() -> None:
    ours, better, cheaper = result("objective", 0.99, 10.0), result("linear", 0.99, 9.0), result("keda", 0.5, 3.0)
    assert on_front(ours, [ours, cheaper])
    assert not on_front(ours, [ours, better])
    assert on_front(better, [ours, better, cheaper])
    assert on_front(ours, [ours, result("linear", 0.99, 10.0)])


def test_the_clairvoyant_look_ahead_and_do_not_with_whole_partitions_and_slices_and_compete_with_nobody() -> None:
    scene = scenario_of("steps")
    knowing = [choice for choice in CHOICES if parse_choice(choice.policy_for(scene))[0] == "clairvoyant"]
    given = [parse_choice(choice.policy_for(scene))[1] for choice in knowing]
    kinds = {(each.get("with_startup", 1.0), each.get("sliced", 0.0)) for each in given}
    assert len(knowing) == 4
    assert kinds == {(ahead, sliced) for ahead in (0.0, 1.0) for sliced in (0.0, 1.0)}
    ours = result("objective", 0.99, 10.0)
    assert rivals([ours, *(result(choice.name, 1.0, 1.0) for choice in knowing)]) == [ours]


def test_each_row_is_listed_with_the_packer_that_it_was_played_with() -> None:
    played = [result(choice.name, 0.9, 10.0) for choice in CHOICES]
    lines = packers({each.job.key: each for each in played}).splitlines()
    rows = dict(line.removeprefix("- ").split(": ", 1) for line in lines if line.startswith("- "))
    for name, packer in (
        ("`landau24`", "mwf"),
        ("`keda`", "sticky"),
        ("`linear`", "sticky"),
        ("`closer24_algorithm_1`", "closer24"),
        ("*clairvoyant*", "trim"),
        ("`objective`", "trim"),
    ):
        assert [listed for listed, names in rows.items() if name in names.split(", ")] == [f"`{packer}`"], name
    assert sum(names.count("`") + names.count("*") for names in rows.values()) == 2 * len(CHOICES), "each once"


def test_who_knows_the_future_is_kept_out_of_the_front_and_in_the_table() -> None:
    known = {each.job.key: each for each in (result("objective", 0.99, 10.0), result("clairvoyant", 1.0, 5.0))}
    rows = table(known, "spike")
    assert "| **`objective`** | not played | **99.00 % / 10.00 / 4 / 2** | not played | not played |" in rows
    assert "| *clairvoyant* | not played | 100.00 % / 5.00 / 4 / 2 | not played | not played |" in rows


def test_all_loads_in_one_table_are_those_that_everybody_played() -> None:
    first = [result(choice.name, 0.9, 20.0, scene="spike") for choice in CHOICES]
    second = [result(choice.name, 0.8, 45.0, scene="steps") for choice in CHOICES]
    first[0], second[0] = result("objective", 0.99, 10.0, scene="spike"), result("objective", 0.97, 90.0, scene="steps")
    half = [result("objective", 0.1, 1.0, scene="ramp")]
    kept = {each.job.key: each for each in (*first, *second, *half)}
    text = "\n".join(summary(kept, ["spike", "steps", "ramp"]))
    assert "2 at 1 s" in text
    assert "| `objective` | not played | 98.00 % (97.00) / 1.00 / 2 | not played | not played |" in text
    # Twice as dear on one load and half as dear on the other; beaten on the first.
    assert "| `keda` | not played | 85.00 % (80.00) / 1.00 / 1 | not played | not played |" in text
    assert "| *clairvoyant* | not played | 85.00 % (80.00) / 1.00 / - | not played | not played |" in text
    assert summary({each.job.key: each for each in half}, ["ramp"]) == []


def test_what_was_played_with_several_seeds_is_a_range_and_competes_with_the_first() -> None:
    ours = (result("objective", share, minutes, seed=seed) for seed, share, minutes in ((1, 0.99, 9), (2, 0.98, 10)))
    known = {each.job.key: each for each in (*ours, result("linear", 0.985, 9.5))}
    rows = table(known, "spike")
    assert (
        "| **`objective`** | not played | **98.00 to 99.00 % / 9.00 to 10.00 / 4 / 2** | not played | not played |"
        in rows
    )
    assert [each.job.seed for each in grouped(known)["spike", 1.0]] == [1, 1]
    jobs = {job.key for job in extra_jobs(False)}
    for seed in RANGE_SEEDS[1:]:
        for scene in RANGED:
            assert {
                ComparisonJob(scene=scene, choice="objective", startup_seconds=at, seed=seed).key for at in STARTUPS
            } <= jobs


def test_stand_ins_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    for rates in (datasets.ten_minutes(), datasets.world_cup(), datasets.taxi()):
        assert not rates.recorded
        assert rates.source.startswith("STAND-IN")
        assert min(rates.per_second) >= 0.0
    load, recorded = datasets.landau_stream(2)
    assert (recorded, load.seconds, len(load.partitions)) == (False, 60, 32)


@pytest.fixture
def recorded_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A directory for recordings, empty at first."""
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    scenario_of.cache_clear()
    yield tmp_path
    scenario_of.cache_clear()


@pytest.mark.usefixtures("recorded_here")
@pytest.mark.parametrize("name", ["trace", "trace-skewed", *PLAYED])
def test_every_recorded_load_has_a_stand_in_where_a_directory_is_named_without_it(name: str) -> None:
    assert scenario_of(name).recorded is False


def test_recordings_are_played_where_they_are(recorded_here: Path) -> None:
    job = ComparisonJob(scene="taxi", choice="keda", startup_seconds=1.0)
    before = digest(job)
    minutes = "".join(f"1998-06-{day} 12:{minute:02}:00,{count}\n" for day in (29, 30) for minute, count in MATCH[day])
    (recorded_here / WORLD_CUP_NAME).write_bytes(gzip.compress(f"period,count\n{minutes}".encode()))
    (recorded_here / TAXI_NAME).write_text(
        "timestamp,value\n2015-01-04 23:30:00,900\n2015-01-05 00:00:00,100\n2015-01-06 23:30:00,300\n"
    )
    stream = [{"a": {"0": 20 * row, "1": 40}, "b": {"0": 100}} for row in range(3)]
    (recorded_here / LANDAU_NAME).write_text(json.dumps(stream))
    cup, taxi = datasets.world_cup(), datasets.taxi()
    assert cup.recorded
    assert taxi.recorded
    # 100 and 400 in two halves: 350/s at most, a quarter of it at first, halfway in the quarter.
    assert [cup.per_second[at] for at in (0, 150, 300, 599)] == [87.5, 218.75, 350.0, 350.0]
    assert 92.0 <= taxi.per_second[0] <= 108.0
    assert 276.0 <= taxi.per_second[-1] <= 324.0
    load, recorded = datasets.landau_stream(2)
    assert recorded
    assert load.per_second == (35.0,) * 30 + (40.0,) * 30
    scenario_of.cache_clear()
    assert digest(job) != before, "results of stand-ins are not kept for recordings"


def test_the_page_says_which_loads_were_recorded() -> None:
    names = ["steps", "trace", "taxi"]
    text = origins(names)
    told = {name: scenario_of(name).recorded for name in names}
    assert {name for name, kind in told.items() if kind is not None} == {"trace", "taxi"}
    recorded, stand_ins, _ = text.split(". ")
    for name, kind in told.items():
        assert (f"`{name}`" in recorded, f"`{name}`" in stand_ins) == (kind is True, kind is False)
    assert text in page({}, names, [], "make compare", 0, False)


def verdict(told: list[TargetVerdict], words: str) -> TargetVerdict:
    return next(each for each in told if words in each.target)


def test_what_was_not_played_is_open_and_what_is_missed_is_missed() -> None:
    names = [choice.name for choice in CHOICES]
    known = {
        each.job.key: each for startup in STARTUPS for each in (result(name, 0.9, 10.0, startup) for name in names)
    }
    quiet = "no scaling"
    assert verdict(verdicts(known, ["spike"]), "front").met is True
    assert verdict(verdicts(known, ["spike"]), quiet).met is None
    beaten = result("linear", 0.95, 9.0, 60.0)
    told = verdict(verdicts(known | {beaten.job.key: beaten}, ["spike"]), "front")
    assert (told.met, told.miss) == (False, "at 1 of 4 start-up times")
    assert told.measured == "not at 60 s: `linear` (+5.00 points of share, -1.00 replica-minutes)"
    constant = {job.key: msgspec.structs.replace(RESULT, job=job) for job in extra_jobs(False)}
    assert verdict(verdicts(constant, []), quiet).met is True
    loud = next(job for job in extra_jobs(False) if job.scene == "constant-1.9-3")
    constant[loud.key] = msgspec.structs.replace(constant[loud.key], scalings_after=2)
    told = verdict(verdicts(constant, []), quiet)
    assert told.met is False
    assert "1.9: 0, 0, 2, 0" in told.measured
    assert verdict(verdicts({}, []), "13.5 consumers").met is None


def test_a_missed_target_tells_by_how_much_and_one_that_is_met_does_not() -> None:
    names = [choice.name for choice in CHOICES]
    front = [result(name, 0.9, 10.0, startup, scene="steps") for startup in STARTUPS for name in names]
    beaten = [result("linear", 0.95, 9.0, startup, scene="steps") for startup in (1.0, 10.0)]
    beaten.append(result("fixed (peak)", 0.95, 9.0, 60.0, scene="steps"))
    sliced = ComparisonJob(scene="trace", choice="objective, slicing", startup_seconds=1.0)
    paid = msgspec.structs.replace(RESULT, job=sliced, share=0.998, replica_minutes=30.03)
    stream = ComparisonJob(scene="landau-100", choice="objective, slicing", startup_seconds=1.0)
    slow = msgspec.structs.replace(RESULT, job=stream, p99=0.15, replicas_mean=12.0)
    constant = [msgspec.structs.replace(RESULT, job=job) for job in extra_jobs(False) if "constant" in job.scene]
    loud = [
        msgspec.structs.replace(RESULT, job=job, scalings_after=1)
        for job in extra_jobs(False)
        if job.scene in ("constant-1.6-3", "constant-3.8-1")
    ]
    known = {each.job.key: each for each in (*front, *beaten, paid, slow, *constant, *loud)}
    told = verdicts(known, ["steps"])
    off = verdict(told, "front")
    assert off.miss == "at 3 of 4 start-up times"
    assert verdict(told, "28.6").miss == "by 0.100 points of share, replica-minutes by 5.0%"
    assert verdict(told, "13.5").miss == "p99 by 50.0%"
    assert verdict(told, "no scaling").miss == "by 2 runs"
    text = page(known, ["steps"], told, "make compare", 0, False)
    assert "| **missed** p99 by 50.0% |" in text
    within = known | {paid.job.key: msgspec.structs.replace(paid, share=0.999, replica_minutes=28.6)}
    met = verdict(verdicts(within, ["steps"]), "28.6")
    assert (met.met, met.miss) == (True, "")


@pytest.mark.slow
def test_a_run_goes_on_where_it_ended_and_other_code_is_played_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    job = ComparisonJob(scene="spike", choice="fixed (mean)", startup_seconds=1.0, quick=True)
    said: list[str] = []
    first = play_all([job], path, 1, tell=said.append)
    with path.open("ab") as file:
        file.write(b'{"job": {"scene"')
    assert play_all([job], path, 1, seconds=0.0, tell=said.append) == first
    assert [said[0], said[2]] == [
        f"0 of 1 runs are kept in {path}, 1 are missing", f"1 of 1 runs are kept in {path}, 0 are missing",
    ]  # fmt: skip
    assert len(said) == 3
    monkeypatch.setattr(runs, "digest", lambda job: "other")
    assert play_all([job], path, 1, seconds=0.0, tell=said.append) == {}


@pytest.mark.slow
def test_a_pools_processes_end_when_the_one_that_began_them_is_killed() -> None:
    """They have its output open, so that it ends when they do."""
    code = (
        "import os; from concurrent.futures import ProcessPoolExecutor;"
        "from benchmarks.run_cache import end_with_parent;"
        "pool = ProcessPoolExecutor(2, initializer=end_with_parent);"
        "print(sum(pool.map(abs, range(8))), flush=True); os.kill(os.getpid(), 9)"
    )
    project = Path(runs.__file__).resolve().parents[2]
    ended = subprocess.run([sys.executable, "-c", code], cwd=project, stdout=subprocess.PIPE, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (-9, b"28\n")


def test_a_run_that_would_be_another_is_played_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever makes it another: its row, what the row is told of the load, its settings, or the load itself."""
    jobs = [
        ComparisonJob(scene=scene, choice=choice.name, startup_seconds=startup, seed=seed)
        for scene in ("steps", "spike")
        for choice in CHOICES
        for startup, seed in ((0.0, 1), (1.0, 1), (1.0, 2))
    ]
    before = {job: digest(job) for job in jobs}
    assert len(set(before.values())) == len(jobs)
    told, untold = (ComparisonJob(scene="steps", choice=name, startup_seconds=1.0) for name in ("fixed (mean)", "keda"))
    with monkeypatch.context() as patched:
        patched.setattr(Choice, "policy_for", lambda choice, scene: choice.policy.format(mean=7, worth=82.0))
        assert (digest(told) != before[told], digest(untold) == before[untold]) == (True, True)
    with monkeypatch.context() as patched:
        patched.setattr(
            runs, "config_of", lambda job, scene: structs.replace(config_of(job, scene), decision_seconds=2.0)
        )
        assert all(digest(job) != before[job] for job in (told, untold))

    def busier(name: str, quick: bool) -> Scenario:
        scene = scenario_of(name, quick)
        rates = scene.load.per_second
        return replace(scene, load=replace(scene.load, per_second=(*rates[:-1], rates[-1] + 1.0)))

    monkeypatch.setattr(runs, "scenario_of", busier)
    assert all(digest(job) != before[job] for job in (told, untold))


@pytest.mark.slow
def test_a_result_is_the_same_each_time_and_stands_on_the_page() -> None:
    job = ComparisonJob(scene="spike", choice="objective", startup_seconds=1.0, quick=True)
    first, again = play(job), play(job)
    assert msgspec.structs.replace(first, cpu_seconds=0.0) == msgspec.structs.replace(again, cpu_seconds=0.0)
    text = page({job.key: first}, ["spike"], [], "make compare", 3, True)
    assert f"/ {first.replica_minutes:.2f} /" in text
    assert "Not played yet: 3 of the runs" in text


def test_the_jobs_are_every_load_with_every_policy_and_start_up_time_once() -> None:
    jobs = jobs_of(list(SCENARIOS), [], quick=False, extra=False)
    assert len(jobs) == len({job.key for job in jobs}) == len(SCENARIOS) * len(CHOICES) * len(STARTUPS)
    some = _parsed(["--startups", "60,0"])
    part = jobs_of(list(SCENARIOS), [], False, False, some.startups)
    assert part == [job for job in jobs if job.startup_seconds in (0.0, 60.0)]
    with pytest.raises(SystemExit):
        _parsed(["--startups", "5"])

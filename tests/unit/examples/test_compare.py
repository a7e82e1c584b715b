"""The comparison: who is in it, what it counts, and that it goes on where it ended."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import msgspec
import pytest

from compare import recordings, runs
from compare.__main__ import jobs_of
from compare.page import origins, page, summary, table
from compare.runs import CHOICES, STARTUPS, Job, Result, choice_of, digest, grouped, late_alone, play, play_all
from compare.scenes import OTHERS, SCENES, scene_of
from compare.targets import RANGE_SEEDS, RANGED, Verdict, extra_jobs, on_front, verdicts
from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate
from loadtrim_agent.core.plan.naming import parse_choice
from loadtrim_agent.core.plan.packers import PACKERS
from loadtrim_agent.core.plan.policies import POLICIES

RESULT = Result(
    job=Job(scene="spike", choice="objective", startup_seconds=1.0),
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
MATCH = {29: ((0, 50), (1, 500)), 30: ((0, 100), (1, 400))}
"""Requests per minute of two days, the second of which is played."""


def result(
    choice: str, share: float, minutes: float, startup: float = 1.0, scene: str = "spike", seed: int = 1
) -> Result:
    job = Job(scene=scene, choice=choice, startup_seconds=startup, seed=seed)
    return msgspec.structs.replace(RESULT, job=job, share=share, replica_minutes=minutes)


def test_every_policy_and_only_known_packers_are_compared() -> None:
    scene = scene_of("steps")
    assert {parse_choice(choice.policy_for(scene))[0] for choice in CHOICES} == set(POLICIES)
    assert {choice.packer for choice in CHOICES} <= set(PACKERS)


@pytest.mark.parametrize("name", [*SCENES, *OTHERS])
def test_every_load_can_be_made_and_begins_with_what_it_takes(name: str) -> None:
    scene = scene_of(name)
    assert scene.load.seconds >= 60
    assert scene.replicas * scene.worth >= min(scene.load.per_second[0], len(scene.load.partitions) * scene.worth)
    assert scene_of(name, True).load.seconds == 60


@pytest.mark.parametrize("seed", range(3))
def test_late_alone_is_what_a_replica_for_every_partition_cannot_save(seed: int) -> None:
    """Beside a simulation that has them all from the start: the same records are late."""
    rate = random.Random(seed).uniform(150.0, 400.0)
    load = parse_generator(f"constant:rate={rate},seconds=30,noise=0.5,seed={seed}", 3)
    config = PlanConfig(objective_seconds=0.5, policy="fixed:replicas=3", packer="roundrobin")
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
            assert {Job(scene=scene, choice="objective", startup_seconds=at, seed=seed).key for at in STARTUPS} <= jobs


def test_stand_ins_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    for rates in (recordings.world_cup(), recordings.taxi()):
        assert not rates.recorded
        assert rates.source.startswith("STAND-IN")
        assert min(rates.per_second) >= 0.0
    load, recorded = recordings.landau_stream(2)
    assert (recorded, load.seconds, len(load.partitions)) == (False, 60, 32)
    assert recordings.recordings() == []


def test_recordings_are_played_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    before = digest.__wrapped__(choice_of("keda"))
    minutes = "".join(f"1998-06-{day} 12:{minute:02}:00,{count}\n" for day in (29, 30) for minute, count in MATCH[day])
    (tmp_path / recordings.WORLD_CUP_NAME).write_bytes(gzip.compress(f"period,count\n{minutes}".encode()))
    (tmp_path / recordings.TAXI_NAME).write_text(
        "timestamp,value\n2015-01-04 23:30:00,900\n2015-01-05 00:00:00,100\n2015-01-06 23:30:00,300\n"
    )
    stream = [{"a": {"0": 20 * row, "1": 40}, "b": {"0": 100}} for row in range(3)]
    (tmp_path / recordings.LANDAU_NAME).write_text(json.dumps(stream))
    cup, taxi = recordings.world_cup(), recordings.taxi()
    assert cup.recorded
    assert taxi.recorded
    # 100 and 400 in two halves: 350/s at most, a quarter of it at first, halfway in the quarter.
    assert [cup.per_second[at] for at in (0, 150, 300, 599)] == [87.5, 218.75, 350.0, 350.0]
    assert 92.0 <= taxi.per_second[0] <= 108.0
    assert 276.0 <= taxi.per_second[-1] <= 324.0
    load, recorded = recordings.landau_stream(2)
    assert recorded
    assert load.per_second == (35.0,) * 30 + (40.0,) * 30
    assert digest.__wrapped__(choice_of("keda")) != before, "results of stand-ins are not kept for recordings"


def test_the_page_says_which_loads_were_recorded() -> None:
    text = origins(list(SCENES))
    told = {name: scene_of(name).recorded for name in SCENES}
    assert {name for name, kind in told.items() if kind is not None} == {"trace", "trace-skewed", *PLAYED}
    recorded, stand_ins, _ = text.split(". ")
    for name, kind in told.items():
        assert (f"`{name}`" in recorded, f"`{name}`" in stand_ins) == (kind is True, kind is False)
    assert text in page({}, list(SCENES), [], "make compare", 0, False)


def verdict(told: list[Verdict], words: str) -> Verdict:
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
    assert (told.met, told.measured) == (False, "not at 60 s (linear)")
    constant = {job.key: msgspec.structs.replace(RESULT, job=job) for job in extra_jobs(False)}
    assert verdict(verdicts(constant, []), quiet).met is True
    loud = next(job for job in extra_jobs(False) if job.scene == "constant-1.9-3")
    constant[loud.key] = msgspec.structs.replace(constant[loud.key], scalings_after=2)
    told = verdict(verdicts(constant, []), quiet)
    assert told.met is False
    assert "1.9: 0, 0, 2, 0" in told.measured
    assert verdict(verdicts({}, []), "13.5 consumers").met is None


def test_a_run_goes_on_where_it_ended_and_other_code_is_played_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    job = Job(scene="spike", choice="fixed (mean)", startup_seconds=1.0, quick=True)
    said: list[str] = []
    first = play_all([job], path, 1, tell=said.append)
    with path.open("ab") as file:
        file.write(b'{"job": {"scene"')
    assert play_all([job], path, 1, seconds=0.0, tell=said.append) == first
    assert len(said) == 2
    monkeypatch.setattr(runs, "digest", lambda choice: "other")
    assert play_all([job], path, 1, seconds=0.0, tell=said.append) == {}


def test_a_row_that_is_defined_otherwise_is_played_anew() -> None:
    assert len({digest(choice) for choice in CHOICES}) == len(CHOICES)


def test_a_result_is_the_same_each_time_and_stands_on_the_page() -> None:
    job = Job(scene="spike", choice="objective", startup_seconds=1.0, quick=True)
    first, again = play(job), play(job)
    assert msgspec.structs.replace(first, cpu_seconds=0.0) == msgspec.structs.replace(again, cpu_seconds=0.0)
    text = page({job.key: first}, ["spike"], [], "make compare", 3, True)
    assert f"/ {first.replica_minutes:.2f} /" in text
    assert "3 runs of it were not played yet" in text


def test_the_jobs_are_every_load_with_every_policy_and_start_up_time_once() -> None:
    jobs = jobs_of(list(SCENES), [], quick=False, extra=False)
    assert len(jobs) == len({job.key for job in jobs}) == len(SCENES) * len(CHOICES) * len(STARTUPS)

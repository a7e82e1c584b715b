"""``loadtrim simulate``: what it prints, and what it says about wrong input."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtrim.cli import main

LOAD = "step:before=50,after=200,at=5,seconds=15"
QUIET = "constant:rate=1,seconds=3"
SHORT = ["simulate", LOAD, "--partitions", "3", "--sla", "0.5"]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_a_load_of_few_records_shows_as_some(capsys: pytest.CaptureFixture[str]) -> None:
    """A record a minute showed as `up to 0/s`."""
    assert main(["simulate", "constant:rate=0.02,seconds=120", "--partitions", "2"]) == 0
    assert ": 2.4 records in 120 s on 2 partitions, up to 0.02/s" in capsys.readouterr().out


@pytest.mark.slow
def test_policies_are_compared_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--policy", "objective", "--policy", "closer24:mu=200/least_loaded", "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{LOAD}: 2,250 records in 15 s on 3 partitions, up to 200/s")
    head = next(index for index, line in enumerate(lines) if line.startswith("policy"))
    named = [line.split()[:2] for line in lines[head + 1 : lines.index("", head)]]
    assert named == [["objective", "trim"], ["closer24:mu=200", "least_loaded"]]
    assert ".." in lines[head + 1], "the spread over the seeds"


@pytest.mark.slow
def test_json_holds_the_figures_and_the_curves(capsys: pytest.CaptureFixture[str]) -> None:
    printed = told([*SHORT, "--curves", "--cost", "exponential:4ms", "--seeds", "2"], capsys)
    (run,) = printed["runs"]
    assert run["seeds"] == [1, 2]
    assert run["records"] == 2250
    assert 0.0 < run["latency_p50"] < run["latency_p99"] < run["latency_max"]
    assert len(run["curves"]["load"]) == 15
    assert sum(run["curves"]["arrived"]) == 2250
    assert printed["costs"] == {"kind": "exponential", "mean_seconds": 0.004}
    assert "decisions" not in run
    assert "curves" not in told(SHORT, capsys)["runs"][0]


@pytest.mark.slow
def test_json_holds_the_whole_setting(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--share", "0.99", "--startup", "2", "--speeds", "1,0.5", "--concurrency", "2", "--replicas", "2"]
    words += ["--min", "2", "--max", "3", "--protocol", "kip848", "--cost", "lognormal:4ms,0.8", "--seed", "7"]
    printed = told([*SHORT, *words, "--scale", "2"], capsys)
    assert printed["objective"] == {"seconds": 0.5, "share": 0.99}
    assert printed["costs"] == {"kind": "lognormal", "mean_seconds": 0.004, "variation": 0.8}
    assert printed["group"] == {
        "replicas": 2,
        "replicas_min": 2,
        "replicas_max": 3,
        "speeds": [1.0, 0.5],
        "concurrency": 2,
        "startup_seconds": 2.0,
        "protocol": "kip848",
        "heartbeat_seconds": 5.0,
        "slicing": False,
        "begins_at": None,
        "baselines": 0,
    }
    assert printed["arguments"]["scale"] == 2.0
    assert printed["arguments"]["seed"] == 7
    assert told(SHORT, capsys)["group"]["replicas_max"] == 3, "the partitions"


@pytest.mark.slow
def test_the_head_tells_what_is_not_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--share",
        "0.99999",
        "--cost",
        "lognormal:4ms,0.8",
        "--scale",
        "2",
        "--speeds",
        "1,0.5",
        "--replicas",
        "2",
    ]
    assert main([*SHORT, *words, "--concurrency", "2", "--max", "3", "--shares", "skewed", "--seed", "7"]) == 0
    _, group, others, *_ = capsys.readouterr().out.splitlines()
    assert "99.999% of the records" in group
    assert "lognormal, standard deviation 0.8 times that" in group
    assert others == (
        "also given: --shares skewed --scale 2.0 --speeds 1,0.5 --concurrency 2 --replicas 2 --max 3 --seed 7"
    )
    assert main(SHORT) == 0
    assert "also given" not in capsys.readouterr().out


@pytest.mark.slow
def test_decisions_are_told_with_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--seeds", "2", "--decisions"]) == 0
    out = capsys.readouterr().out
    assert "objective/trim, seed 1:\n" in out
    assert "busy seconds/s arrive" in out
    assert "seed 2:" not in out
    (run,) = told([*SHORT, "--decisions"], capsys)["runs"]
    assert {"second", "replicas_wanted", "reason", "moves"} <= set(run["decisions"][0])


@pytest.mark.slow
def test_records_that_were_not_done_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "constant:rate=20,seconds=10", "--partitions", "1", "--cost", "1s", "--policy", "fixed"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "were not done 60 s after the load's end" in out
    assert "  > " in out
    (run,) = told(words, capsys)["runs"]
    assert run["left"] > 0
    assert "latency_max" in run["lower_bounds"]


@pytest.mark.slow
def test_runs_of_one_policy_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines were the same, and a mean of several seeds was told as if it were one run's."""
    words = ["simulate", "constant:rate=20,seconds=5", "--partitions", "1", "--cost", "1s", "--policy", "fixed/trim"]
    assert main([*words, "--policy", "fixed/sticky", "--seeds", "2"]) == 0
    left = [line for line in capsys.readouterr().out.splitlines() if "were not done" in line]
    assert [line.partition(": a mean of ")[0] for line in left] == ["fixed/trim", "fixed/sticky"]


@pytest.mark.slow
def test_what_was_given_can_be_given_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--speeds", "1, 2", "--begins-at", "2024-05-01 12:00:00"]) == 0
    others = capsys.readouterr().out.splitlines()[2]
    assert shlex.split(others)[2:] == ["--speeds", "1, 2", "--begins-at", "2024-05-01 12:00:00"]


def test_a_papers_streams_are_dealt_out_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With as many partitions as the file has, the option was passed over."""
    path = tmp_path / "stream.json"
    path.write_text('[{"a": {"0": 30, "1": 10}}]')
    words = ["simulate", str(path), "--interval", "2", "--policy", "fixed"]
    dealt = told([*words, "--partitions", "2"], capsys)["load"]
    assert (dealt["partitions"], dealt["shares"], dealt["keys"]) == (["load-0", "load-1"], [0.5, 0.5], "random")
    exact = told([*words, "--shares", "3,1", "--keys", "fixed"], capsys)["load"]
    assert (exact["shares"], exact["keys"]) == ([0.75, 0.25], "fixed")


def test_a_terminal_gets_what_fits_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*SHORT, "--policy", "objective", "--policy", "fixed:replicas=2"]) == 0
    lines = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert sum(line.startswith("policy ") for line in lines) == 2
    assert max(map(len, lines[lines.index("") :])) <= 80


def test_files_shares_and_protocols(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,records\n0,60\n1,60\n2,0\n4,60\n")
    words = ["simulate", str(path), "--partitions", "3", "--shares", "2,1,1", "--keys", "fixed", "--scale", "2"]
    printed = told([*words, "--protocol", "cooperative", "--heartbeat", "1", "--arrivals", "poisson"], capsys)
    assert printed["load"]["records"] == 360
    assert printed["load"]["arrivals"] == "poisson"
    assert any("missing" in note for note in printed["notes"])
    assert printed["runs"][0]["protocol"] == "cooperative"


@pytest.mark.slow
def test_records_are_played_at_the_moments_that_a_file_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten records each 0.1 s were a burst of 100 a second: late with four replicas where one is enough."""
    path = tmp_path / "load.csv"
    path.write_text("time,records\n" + "".join(f"{at / 10},10\n" for at in range(100)))
    words = ["simulate", str(path), "--sla", "0.1", "--policy", "fixed:replicas=1", "--replicas", "1"]
    assert main(words) == 0
    assert "arriving as recorded" in capsys.readouterr().out.splitlines()[0]
    assert told(words, capsys)["runs"][0]["share_in_time"] == 1.0
    printed = told([*words, "--arrivals", "burst"], capsys)
    assert printed["load"]["arrivals"] == "burst"
    assert printed["runs"][0]["share_in_time"] < 0.5


@pytest.mark.slow
def test_a_partition_larger_than_any_member_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    printed = told(["simulate", "constant:rate=400,seconds=5", "--shares", "skewed", "--partitions", "4"], capsys)
    assert printed["notes"] == []
    printed = told(["simulate", "constant:rate=900,seconds=5", "--shares", "skewed", "--partitions", "4"], capsys)
    assert "larger than the fastest member" in printed["notes"][0]
    assert "load-0 (1.12 members at its peak), load-1" in printed["notes"][0]


@pytest.mark.slow
def test_how_a_table_was_read_is_told_with_the_option_that_changes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "export.csv"
    path.write_text("timestamp,value\n" + "".join(f"{1714564800 + 15 * at},{at + 10.5}\n" for at in range(3)))
    assert main(["simulate", str(path), "--policy", "fixed"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert (
        "on 9 partitions (assumed, for nothing tells how many; --partitions N), up to 12/s, arriving as poisson"
        in first
    )
    assert second == (
        "read: 3 rows, 15 s apart, from 2024-05-01 12:00:00 to 2024-05-01 12:00:30 UTC; 'value' is read as records per "
        "second, for it has fractions (otherwise: --values count); 11.5/s on average"
    )
    printed = told(["simulate", str(path), "--policy", "fixed", "--values", "count", "--partitions", "2"], capsys)
    assert not printed["load"]["partitions_assumed"]
    assert printed["load"]["read_as"]["quantity"] == "count"
    assert printed["load"]["records"] == pytest.approx(34.5)


@pytest.mark.slow
def test_a_cold_start_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "constant:rate=450,seconds=30", "--startup", "3", "--no-advice"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "begins with 3 replicas, what the first 5 s take" in out
    assert "without the first" not in out
    assert main([*words, "--replicas", "1"]) == 0
    out = capsys.readouterr().out
    assert "begins with 1 replica;" not in out
    assert "objective/trim: without the first 6 s, in which no replica that is asked for can be there, " in out
    (run,) = told([*words, "--replicas", "1"], capsys)["runs"]
    assert run["share_in_time"] < run["without_first"]["share_in_time"]
    assert run["without_first"]["seconds"] == 6
    words = ["simulate", "constant:rate=450,seconds=4", "--startup", "3", "--no-advice", "--replicas", "1"]
    assert main(words) == 0
    assert "without the first" not in capsys.readouterr().out, "of no record 100 % are in time"
    (run,) = told(words, capsys)["runs"]
    assert run["without_first"]["share_in_time"] is None


@pytest.mark.slow
def test_what_would_help_is_told_where_no_policy_holds_the_share(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "constant:rate=300,seconds=20", "--partitions", "2", "--shares", "0.8,0.2", "--keys", "fixed"]
    assert main(words) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("advice: ")]
    assert line.startswith("advice: objective/trim has ")
    assert "in time where 99.9 % are asked for; 99.9 % would be held with 4 partitions" in line
    found = told(words, capsys)["advice"]
    assert (found["policy"], found["code"]) == ("objective/trim", "tried")
    assert {trial["change"] for trial in found["trials"] if trial["holds"]} == {"partitions"}
    assert told([*words, "--no-advice"], capsys)["advice"] is None
    assert told(["simulate", "constant:rate=30,seconds=5"], capsys)["advice"] is None


@pytest.mark.slow
def test_money_is_told_beside_a_fixed_group(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "spike:rate=50,height=350,at=20,width=20,seconds=90", "--sla", "2", "--price", "$0.60"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("cost "))
    assert lines[at + 1].startswith("objective/trim ")
    assert lines[at + 2].startswith("2 replicas all the time ")
    assert lines[at + 3] == "2 replicas all the time: the fewest that hold 99.9 % without being scaled"
    printed = told(words, capsys)
    (run,) = printed["runs"]
    fixed = printed["price"]["fixed"]
    assert (printed["price"]["per_replica_hour"], printed["price"]["currency"]) == (0.6, "$")
    assert run["cost"] == pytest.approx(0.01 * run["replica_minutes"])
    assert run["cost_per_month"] == pytest.approx(0.6 * 730 * run["replicas_mean"])
    assert (fixed["replicas"], fixed["cost"]) == (2, pytest.approx(0.01 * 3.0))
    assert lines[at + 4].startswith(f"objective/trim costs {(1 - run['replica_minutes'] / 3.0) * 100:.1f} % less")
    nothing = told(["simulate", "constant:rate=30,seconds=5"], capsys)
    assert nothing["price"] is None
    assert "cost" not in nothing["runs"][0]


@pytest.mark.slow
def test_records_that_take_long_are_given_as_many_replicas_as_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Three do it at 29.8 replica-minutes. The group had six, which came and went: 58.4."""
    words = ["--cost", "4s", "--sla", "20", "--startup", "3", "--partitions", "6", "--replicas", "1", "--seeds", "2"]
    (run,) = told(["simulate", "constant:rate=0.6,seconds=600", *words], capsys)["runs"]
    assert run["share_in_time_min"] == 1.0
    assert run["replica_minutes"] <= 33.0
    assert run["ups"] + run["downs"] <= 4


def test_a_load_without_a_record_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,records\n0,0\n1,0\n")
    assert any("no record arrives" in note for note in told(["simulate", str(path)], capsys)["notes"])


@pytest.mark.slow
def test_a_plot_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    assert main([*SHORT, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["no/out.png", "out.txt", "out", "directory.png"])
def test_a_plot_that_cannot_be_written_is_said_before_anything_is_played(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said after minutes, and nothing else was."""
    pytest.importorskip("matplotlib")
    (tmp_path / "directory.png").mkdir()
    assert main([*SHORT, "--plot", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert "cannot be written" in said.err
    assert "Nothing was played." in said.err
    assert said.out == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_the_figures_are_printed_before_a_plot_can_fail(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = pytest.importorskip("matplotlib.figure")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure.Figure, "savefig", full)
    assert main([*SHORT, "--plot", str(tmp_path / "out.png"), *words]) == 1
    said = capsys.readouterr()
    assert "objective" in said.out
    assert "No space left" in said.err
    assert "The figures above are not affected." in said.err


def test_a_plot_needs_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*SHORT, "--plot", "out.png"]) == 2
    said = capsys.readouterr()
    assert "pip install matplotlib" in said.err
    assert "the figures are not affected" not in said.err, "nothing was played, so there are none"
    assert said.out == ""


def test_a_part_of_a_trace_of_months_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "load.csv"
    rows = ("2024-01-01 00:00:00,1800", "2024-01-01 00:30:00,3600", "2024-01-01 01:00:00,3600", "2024-06-01,3600")
    path.write_text("time,count\n" + "\n".join(rows))
    printed = told(["simulate", str(path), "--begin", "1795", "--seconds", "10"], capsys)
    assert printed["load"]["seconds"] == 10
    assert printed["load"]["records"] == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Give a load or --group"),
        ([LOAD, "--group", "g"], "Give a load or --group"),
        (["no-such-file.csv"], "There is no file"),
        (["consine"], "There is no file or generator 'consine', so no load can be made"),
        (["consine"], "the nearest is 'cosine'"),
        (["stp:before=1"], "the nearest is 'step'"),
        ([LOAD, "--policy", "objectiv"], "the nearest is 'objective'"),
        ([LOAD, "--policy", "closer24:mus=1"], "the nearest is 'mu'"),
        ([LOAD, "--packer", "trin"], "the nearest is 'trim'"),
        ([LOAD, "--policy", "fixed/least_loadd"], "the nearest is 'least_loaded'"),
        ([LOAD, "--protocol", "eagre"], "the nearest is 'eager'"),
        ([LOAD, "--cost", "0"], "cost"),
        ([LOAD, "--cost", "fast"], "no cost"),
        ([LOAD, "--speeds", "0"], "no capacity"),
        ([LOAD, "--speeds", "a"], "must be numbers"),
        ([LOAD, "--concurrency", "0"], "no capacity"),
        ([LOAD, "--replicas", "0"], "no member"),
        ([LOAD, "--partitions", "0"], "at least 1"),
        ([LOAD, "--partitions", "2", "--shares", "1,2,3"], "2 numbers"),
        ([LOAD, "--partitions", "2", "--shares", "nan,1"], "2 numbers"),
        ([LOAD, "--shares", "1,1,1,1,1,1,1,1"], "Or give --partitions 8."),
        ([LOAD, "--sla", "0"], "--sla is 0"),
        ([LOAD, "--sla", "nan"], "--sla is nan"),
        (
            [LOAD, "--share", "1"],
            "--share is 1; the share of the records to be in time must be at least 0.5 and below 1",
        ),
        ([LOAD, "--share", "0.4"], "--share is 0.4"),
        ([LOAD, "--min", "3", "--max", "2"], "--max that is no smaller"),
        ([LOAD, "--min", "0"], "--min of at least 1"),
        ([LOAD, "--replicas", "9", "--max", "3"], "--replicas of 1 to 3"),
        ([LOAD, "--replicas", "9", "--partitions", "4"], "--replicas of 1 to 4"),
        ([LOAD, "--replicas", "15", "--max", "20", "--partitions", "3"], "--replicas of 1 to 3"),
        ([LOAD, "--min", "20"], "--min of 1 to 9"),
        ([LOAD, "--partitions", "100000"], "more than the 10000"),
        ([LOAD, "--shares", "evn"], "even, skewed (the nearest is 'even'), or give 9 numbers"),
        (["drift", "--shares", "even"], "--shares would undo the partitions' shares that drift is there to make"),
        (["landau:seed=3", "--shares", "skewed"], "--shares would undo"),
        ([LOAD, "--cost", "lognorm:5ms"], "the nearest is 'lognormal'"),
        ([LOAD, "--shares", ""], "--shares ''"),
        ([LOAD, "--cost", ""], "no cost of a record"),
        ([LOAD, "--values", "rate"], "--values is for tables, and this is a generator"),
        ([LOAD, "--capacity", "200"], "--capacity is for files of Landau'24's streams, and this is a generator"),
        (["landau", "--interval", "10"], "--interval is for files of Landau'24's streams, and this is a generator"),
        ([LOAD, "--record-bytes", "5"], "--record-bytes is for files that tell bytes"),
        ([LOAD, "--record-bytes", "-5"], "--record-bytes is -5"),
        ([LOAD, "--past", "10"], "--past is for the telemetry of a --group"),
        (["--group", "g", "--past", "nan"], "--past is nan"),
        ([LOAD, "--config", "nofile"], "--config is for the telemetry of a --group"),
        ([LOAD, "--bootstrap", "b:1"], "--bootstrap is for the telemetry of a --group"),
        ([LOAD, "--heartbeat", "3"], "--heartbeat is for Kafka's protocols"),
        ([LOAD, "--arrivals", "recorded"], "does not tell at which moments"),
        ([LOAD, "--policy", "fixed:replicas=2,replicas=3"], "replicas is there twice"),
        ([LOAD, "--policy", "keda:lag_threshold_records=1e13"], "a number above 0 and of at most 1e+12"),
        ([LOAD, "--curves"], "--curves goes with --json"),
        ([LOAD, "--speed-up", "1"], "--speed-up is for recorded times"),
        ([LOAD, "--startup", "-1"], "start-up"),
        ([LOAD, "--scale", "nan"], "cannot be scaled"),
        ([LOAD, "--begin", "100"], "no part"),
        ([LOAD, "--seeds", "0"], "at least one run"),
        ([LOAD, "--price", "cheap"], "--price is 'cheap'"),
        ([LOAD, "--heartbeat", "0", "--protocol", "eager"], "A heartbeat (--heartbeat) comes every 0 s"),
        ([LOAD, "--slicing", "--protocol", "eager"], "rebalance"),
    ],
)
def test_wrong_input_is_said_and_is_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Nothing was played." in error
    assert "Traceback" not in error


def test_a_time_may_have_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """``--cost`` took one, and ``--sla 500ms`` was an "invalid float value"."""
    (timed,) = [told(["simulate", QUIET, "--sla", "500ms", "--startup", "2s"], capsys)]
    assert (timed["objective"]["seconds"], timed["group"]["startup_seconds"]) == (0.5, 2.0)
    assert main(["simulate", QUIET, "--sla", "soon"]) == 2
    assert "'soon' is no time; write it like 0.5, 0.5s or 500ms" in capsys.readouterr().err


def test_where_nothing_was_decided_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A heading stood there, and nothing below."""
    assert main(["simulate", QUIET, "--partitions", "1", "--policy", "fixed:replicas=1", "--decisions"]) == 0
    assert "none: no decision wanted another number" in capsys.readouterr().out


def test_help_lists_generators_policies_packers_and_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    out = capsys.readouterr().out
    for word in ("cosine", "landau", "drift", "closer24", "least_loaded", "kip848", "examples:", "--slicing"):
        assert word in out


def test_without_a_broker_the_telemetry_of_a_group_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--group", "g", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "No broker can be talked to" in capsys.readouterr().err

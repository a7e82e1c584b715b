"""What is shown of simulated runs: columns that fit a terminal, and decisions in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtrim.simulate import Options, Outcome, PlanConfig, Summary, parse_generator, simulate, summary_of
from loadtrim.simulate.report.text import HEAD, decision_lines, decisions_of, legend_lines, table_lines

POLICIES = (("objective", "trim"), ("closer24:mu=200", "least_loaded"))
SEEDS = (3, 4)


def play(policy: str, packer: str, seed: int) -> Outcome:
    load = parse_generator("step:before=50,after=250,at=5,seconds=15", 4)
    return simulate(load, PlanConfig(policy=policy, packer=packer, sla_seconds=0.5), Options(seed=seed))


@pytest.fixture(scope="module")
def summaries() -> list[Summary]:
    return [
        summary_of(
            [play(policy, packer, seed) for seed in SEEDS],
            policy=policy,
            packer=packer,
            protocol="loadtrim",
            slicing=False,
            seeds=SEEDS,
        )
        for policy, packer in POLICIES
    ]


@pytest.mark.slow
def test_a_pipe_gets_one_line_per_policy(summaries: list[Summary]) -> None:
    lines = table_lines(summaries)
    assert len(lines) == 1 + len(POLICIES)
    assert all(name in lines[0] for name in HEAD)


def test_the_table_fits_eighty_columns(summaries: list[Summary]) -> None:
    """Thirteen columns were folded into each other, letter by letter."""
    lines = table_lines(summaries, 80)
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if line.startswith("policy")]
    assert [word for head in heads for word in head if word not in ("policy", "packer")] == " ".join(HEAD[2:]).split()
    assert all(head[:2] == ["policy", "packer"] for head in heads)
    blocks = "\n".join(lines).split("\n\n")
    assert all(block.count("\n") == len(POLICIES) for block in blocks)
    assert blocks[-1].split()[-1] == table_lines(summaries)[-1].split()[-1]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 100, 120, 200])
def test_no_column_is_lost_at_any_width(summaries: list[Summary], width: int) -> None:
    lines, whole = table_lines(summaries, width), table_lines(summaries)
    words = " ".join(lines).split()
    assert all(words.count(word) == 1 for word in " ".join(HEAD[2:]).split())
    assert (lines == whole) == (width >= max(map(len, whole)))


def test_the_best_is_bold(summaries: list[Summary]) -> None:
    best = min(each.replica_minutes for each in summaries)
    bold = table_lines(summaries, bold=True)
    assert any(f"{best:.2f}\x1b[0m" in line for line in bold)
    assert "\x1b" not in "".join(table_lines(summaries[:1], bold=True)), "of one policy nothing is the best"
    assert [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in bold] == table_lines(summaries)


def test_of_records_that_never_came_no_latency_is_told(summaries: list[Summary]) -> None:
    """A load of a record in five minutes may have none: half of them were said to be done within 0 ms."""
    none = replace(summaries[0], records=0.0, latency_p50=0.0, latency_max=0.0)
    head, row = (line.split() for line in table_lines([none]))
    assert row[-5:] == ["-"] * 5
    assert row[head.index("in")] == "-"


def test_every_column_is_explained(summaries: list[Summary]) -> None:
    said = "\n".join(legend_lines(summaries))
    for name in ("in time", "replica-min", "mean", "most", "up/down", "moves", "p50", "longest"):
        assert name in said
    assert "Means of seeds 3 to 4" in said
    assert max(map(len, legend_lines(summaries))) <= 80


def test_decisions_are_told_that_changed_the_wish_or_moved_something() -> None:
    outcome = play(*POLICIES[0], seed=1)
    told = decisions_of(outcome)
    assert 0 < len(told) < len(outcome.decisions)
    assert max(each["replicas_wanted"] for each in told) == outcome.replicas_max
    assert sum(len(each["moves"]) for each in told) >= outcome.moves > 0
    lines = decision_lines(outcome)
    assert len(lines) == len(told)
    for line, each in zip(lines, told, strict=True):
        assert line.split(" s  ", 1) == [f"{each['second']:8.1f}", each["reason"]]
        assert each["reason"].startswith(f"{each['replicas_wanted']} replica")

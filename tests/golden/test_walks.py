"""The walks of docs/architecture.md: what the running code does, the transcripts, and the page are the same."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from walks.layers import breaks_layers, is_handed_in
from walks.page import GOLDEN, PAGE, written
from walks.recorder import BACK, CALL, RESULT, THEN, Frame, Recorder, Step, way_to
from walks.scenes import WALKS
from walks.transcript import files, parse, transcript

FILES_MAX = {"record": 19, "report": 33, "release": 14, "setting": 11}
"""Today's figures: they may only shrink, unless a decision says why (docs/decisions/architecture.md). Wanted, so that a
newcomer reads few files: 16, 24, 14 and 5."""
TRIES = 3
"""A machine that stands still for a moment may put a step of another task in between."""
WALK_SECONDS_MAX = 60.0
INTERLEAVED = frozenset({"report", "release"})
"""Walks in which two tasks, or two members, have the item: which of them calls first is chance, the steps are not."""
AGAIN = "PYTHONPATH=tests python -m walks --write"


def golden(walk: str) -> str:
    return (GOLDEN / f"{walk}.txt").read_text()


@pytest.mark.parametrize(
    "walk", [pytest.param(name, marks=pytest.mark.slow if name != "record" else ()) for name in WALKS]
)
async def test_the_code_takes_the_steps_of_the_transcript(walk: str) -> None:
    played = ""
    for _ in range(TRIES):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WALK_SECONDS_MAX):
                played = transcript((await WALKS[walk]()).steps)
        if told(walk, played) == told(walk, golden(walk)):
            break
    assert told(walk, played) == told(walk, golden(walk)), f"the item goes another way; if that is meant: {AGAIN}"


def told(walk: str, text: str) -> list[Step]:
    steps = parse(text)
    return sorted(steps) if walk in INTERLEAVED else steps


def test_an_arrow_the_other_way_round_is_another_walk() -> None:
    text = golden("report")
    first = parse(text)[1]
    line = f"{first.come_from} {first.kind} {first.to}: {first.form}"
    assert line in text
    turned = text.replace(line, f"{first.to} {first.kind} {first.come_from}: {first.form}", 1)
    assert told("report", turned) != told("report", text)


def test_the_page_has_the_diagrams_of_the_transcripts() -> None:
    page = PAGE.read_text()
    assert written(page) == page, f"docs/architecture.md is out of date: {AGAIN}"


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_passes_few_files(walk: str) -> None:
    assert len(files(parse(golden(walk)))) <= FILES_MAX[walk]


@pytest.mark.parametrize("walk", WALKS)
def test_a_drawn_call_is_one_that_the_contracts_allow_and_a_call_back_is_none(walk: str) -> None:
    steps = [step for step in parse(golden(walk)) if step.kind in (CALL, BACK)]
    wrong = [step for step in steps if breaks_layers(step.come_from, step.to) != (step.kind == BACK)]
    assert not wrong


@pytest.mark.parametrize(
    ("caller", "called", "breaks"),
    [
        ("loadtrim_agent/delivery/partition_stream.py", "loadtrim_agent/runtime/membership.py", True),
        ("loadtrim_agent/runtime/membership.py", "loadtrim_agent/delivery/partition_stream.py", False),
        ("loadtrim_agent/delivery/intake.py", "loadtrim_agent/leader/loop.py", True),
        ("loadtrim_agent/delivery/intake.py", "loadtrim_agent/delivery/partition_stream.py", False),
        ("loadtrim_agent/planning/sizing/need.py", "loadtrim_agent/planning/planner.py", True),
        ("loadtrim_agent/planning/forecast.py", "loadtrim_agent/planning/observation.py", False),
        ("loadtrim_agent/runtime/agent.py", "loadtrim/managed.py", True),
        ("user code", "loadtrim/consumer.py", False),
    ],
)
def test_layers_are_those_of_the_contracts(caller: str, called: str, breaks: bool) -> None:
    assert breaks_layers(caller, called) is breaks


@pytest.mark.parametrize(
    ("function", "handed_in"),
    [("Agent.feed", True), ("LeaderLoop._listen.<locals>.hear", True), ("LeaderLoop._listen", False)],
)
def test_what_is_called_back_is_known_by_its_protocol_or_was_handed_in(function: str, handed_in: bool) -> None:
    assert is_handed_in("loadtrim_agent/kafka/control_log.py", function) is handed_in


def test_what_several_tasks_fetch_goes_the_same_way_whichever_task_is_first() -> None:
    metering = [Frame("metering_task.py", "gather"), Frame("metering_task.py", "run_gathering")]
    loads = [Frame("metering_task.py", "gather"), Frame("loads_task.py", "run")]
    walks = []
    for order in ((metering, loads), (loads, metering), (loads, loads, metering), (metering, loads, metering)):
        recorder = Recorder(lambda _: None, "user code", anew=["records done"])
        for stack in order:
            recorder._called(iter(stack), "records done")
            recorder._called(iter([Frame("meter.py", "done"), *stack]), "records done")
        walks.append(sorted(recorder.steps))
    assert walks == [
        sorted(
            [
                Step("user code", "metering_task.py", "records done", THEN),
                Step("user code", "loads_task.py", "records done", THEN),
                Step("loads_task.py", "metering_task.py", "records done"),
                Step("metering_task.py", "meter.py", "records done"),
            ]
        )
    ] * len(walks)


def test_the_way_to_a_step_leaves_out_what_led_elsewhere() -> None:
    steps = [
        Step("env", "a", "text", THEN),
        Step("a", "b", "number"),
        Step("a", "c", "number"),
        Step("b", "elsewhere", "number"),
        Step("b", "user", "settings", RESULT),
        Step("user", "d", "settings"),
    ]
    assert way_to(steps, 5) == [steps[0], steps[1], steps[4], steps[5]]

"""The pure rooms keep to their list, and each way past it is found."""

from __future__ import annotations

import pytest

from architecture.purity import impurities, in_pure_rooms, pure_rooms
from architecture.tree import Module, ours

ROOM = "loadtrim_agent.protocol.lease"


def test_the_pure_rooms_keep_to_the_list() -> None:
    assert impurities(ours()) == []


@pytest.mark.parametrize("room", ["wire", "protocol", "metering", "planning"])
def test_whole_rooms_are_held_to_it(room: str) -> None:
    assert f"loadtrim_agent.{room}" in pure_rooms()
    assert in_pure_rooms(f"loadtrim_agent.{room}.a.b", pure_rooms())
    assert not in_pure_rooms(f"loadtrim_agent.{room}s", pure_rooms())


@pytest.mark.parametrize(
    "text",
    [
        *(f"import {name}" for name in ("io", "sys", "_thread", "timeit", "sched", "ctypes", "fcntl", "contextvars")),
        *(f"import {name}" for name in ("time", "os.path", "asyncio", "logging", "builtins", "importlib", "highspy")),
        "from importlib import import_module",
        "def later():\n    import time",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket",
        "text = open('/etc/hostname').read()",
        "time = __import__('time')",
        "time = importlib.import_module('time')\nimport importlib",
        "print(1)",
        "answer = input()",
        "eval('1')",
        "exec('import time')",
        "compile('import time', '', 'exec')",
        "reader = open",
        "__builtins__['open']",
        "__loader__.load_module('time')",
        "import statistics\nstatistics.random.random()",
        "import statistics as s\ns.random.random()",
        "from statistics import random",
        "import enum\nenum.sys.modules['time']",
        "from loadtrim_agent.common import clock",
        "from loadtrim_agent.common.clock import boot_time",
        "import loadtrim_agent.kafka.connections",
        "from ..common import clock",
        "from ..kafka import connections",
    ],
)
def test_ways_past_the_list(text: str) -> None:
    assert impurities([Module(ROOM, f"{text}\n")]) != []


def test_the_same_outside_the_pure_rooms() -> None:
    assert impurities([Module("loadtrim_agent.kafka.connections", "import time\nprint(1)\n")]) == []


@pytest.mark.parametrize(
    "text",
    [
        "import math\nmath.inf",
        "from collections.abc import Mapping",
        "import msgspec\nmsgspec.structs.fields(object)",
        "from loadtrim_agent.common import naming",
        "from loadtrim_agent.common.partition import Partition",
        "from . import clock",
        "self.open()",
    ],
)
def test_what_follows_from_its_arguments(text: str) -> None:
    assert impurities([Module(ROOM, f"{text}\n")]) == []

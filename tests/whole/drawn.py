"""Options that a seed draws. What came to be drawn later is drawn apart: what a seed had before it still has."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from .programs import FIRST_PROGRAMS, PROGRAMS
from .world import SECOND_TOPIC, TOPIC, Options

__all__ = ["RATES", "drawn_options", "drawn_with_one_topic"]

TELLING_SHARE = 0.1
"""Of the runs. Chosen."""
NAMING_SHARE = 0.1
CHANGING_SHARE = 0.1
"""Of the runs, and half of those with members that gather. Chosen."""
TOPICS_SHARE = 0.1
"""Of the runs without transactions. Chosen."""
TOPICS_RECORDS_PER_SECOND = 10.0
"""At most: user code changes its mind when nothing came. Chosen."""
SLICING_SHARE = 0.3
"""Of the runs. Chosen."""
RATES: dict[str, float] = {
    "crash": 0.03,
    "stop": 0.02,
    "end": 0.04,
    "join": 0.08,
    "freeze": 0.03,
    "suspend": 0.01,
    "block": 0.03,
    "cut": 0.15,
    "cut_late": 0.04,
    "deny": 0.01,
    "black_hole": 0.05,
    "slow": 0.04,
    "node_down": 0.02,
    "failover": 0.03,
    "remove": 0.02,
    "refuse": 0.03,
    "truncate_log": 0.02,
    "expire_log": 0.02,
    "clock_jump": 0.02,
    "foreign": 0.02,
    "enlarge": 0.01,
}
"""Faults a second in a run that has all of them. Chosen: some 20 in 30 s."""
LOSE_OFFSETS_RATE = 0.05
KIP848_RATE = 0.15
LARGE_SHARE = 0.02
"""Of the runs; each costs some four of the others."""
LARGE_MEMBERS, LARGE_PARTITIONS = (21, 30), (41, 64)
LARGE_FAULT_SECONDS = 10.0
NOT_WITH_TRANSACTIONS = ("cut_late", "foreign", "kip848", "lose_offsets")
"""A request of an earlier transaction that comes late is taken for one of the next (KIP-890); others' commits and lost
offsets repeat what was put out."""


def drawn_options(seed: int) -> Options:
    """Draw a run's options: mostly small groups, each with some of the faults, some with none."""
    return _with_topics(seed, drawn_with_one_topic(seed))


def drawn_with_one_topic(seed: int) -> Options:
    """Draw the options that a seed had before some groups had two topics."""
    rng = random.Random(f"options {seed}")
    kinds = sorted(RATES)
    chosen = rng.sample(kinds, rng.choice((0, 2, 4, 4, 8, len(kinds))))
    if rng.random() < 0.7:
        chosen = [kind for kind in chosen if kind != "foreign"]
    factor = rng.choice((0.5, 1.0, 2.0))
    rates = {kind: RATES[kind] * factor for kind in chosen}
    for kind in ("end", "join"):
        rates.setdefault(kind, RATES[kind])
    size = rng.choice((1, 1, 1, 1, 1, 2, 5))
    members = rng.randint(2, 4) * size
    partitions = rng.randint(3, 8) * size
    drain_seconds = rng.choice((1.0, 2.0, 5.0))
    auto_commit = rng.random() < 0.8
    options = Options(
        members=members,
        members_max=members + 2,
        partitions=partitions,
        drain_seconds=drain_seconds,
        auto_commit=auto_commit,
        records_per_second=rng.choice((2.0, 10.0, 40.0)),
        fault_seconds=30.0 / size,
        drift_max=rng.choice((0.0, 0.02, 0.05)),
        moves_per_second=rng.choice((0.0, 0.3, 2.0)),
        listeners=rng.random() < 0.3,
        **_drawn_later(seed, rates, auto_commit=auto_commit),
    )
    options = _gathering(seed, _slicing(seed, _telling(seed, _large(seed, options))))
    return _naming(seed, _changing(seed, options))


def _slicing(seed: int, options: Options) -> Options:
    """Return the options with members that slice, in some of the runs: more load, no listeners where they were rare."""
    rng = random.Random(f"slicing {seed}")
    if rng.random() >= SLICING_SHARE:
        return options
    return replace(options, slicing=True, records_per_second=max(40.0, options.records_per_second))


def _large(seed: int, options: Options) -> Options:
    """Return the options of a large group in some of the runs, drawn apart like what else came later."""
    rng = random.Random(f"size {seed}")
    if rng.random() >= LARGE_SHARE:
        return options
    members, partitions = rng.randint(*LARGE_MEMBERS), rng.randint(*LARGE_PARTITIONS)
    return replace(
        options,
        members=members,
        members_max=members,
        partitions=partitions,
        fault_seconds=LARGE_FAULT_SECONDS,
        moves_per_second=2.0,
    )


def _telling(seed: int, options: Options) -> Options:
    """Return the options with members that say themselves what is done, in some of the runs."""
    if random.Random(f"says what is done {seed}").random() >= TELLING_SHARE:
        return options
    return replace(options, programs=("tells", *options.programs[:2]))


def _changing(seed: int, options: Options) -> Options:
    """Return the options with members that subscribe anew, pause and go back, in some of the runs."""
    rng = random.Random(f"changes it {seed}")
    if rng.random() < CHANGING_SHARE:
        options = replace(options, programs=("changes_its_mind", *options.programs[:2]))
    return replace(options, changes_its_mind=bool(options.gathers) and rng.random() < 0.5)


def _naming(seed: int, options: Options) -> Options:
    """Return the options with members that name the partitions they ask for, in some of the runs."""
    rng = random.Random(f"names partitions {seed}")
    if rng.random() >= NAMING_SHARE:
        return options
    named = rng.choice(("names_partitions", "has_a_task_for_each"))
    return replace(options, programs=(named, *options.programs[:2]))


def _with_topics(seed: int, options: Options) -> Options:
    """Return the options with a second topic, and members that subscribe one or both and seek, in some of the runs."""
    rng = random.Random(f"topics {seed}")
    if options.transactions or rng.random() >= TOPICS_SHARE:
        return options
    return replace(
        options,
        topics=(TOPIC, SECOND_TOPIC),
        partitions=max(1, options.partitions // 2),
        records_per_second=min(options.records_per_second, TOPICS_RECORDS_PER_SECOND),
        programs=("changes_its_mind", *options.programs[:2]),
        changes_its_mind=bool(options.gathers),
        rates=tuple((kind, rate) for kind, rate in options.rates if kind != "kip848"),
        converts_back=True,
    )


def _gathering(seed: int, options: Options) -> Options:
    """Return the options with members that gather records and forget them, in half of the runs that could have them."""
    rng = random.Random(f"gathers {seed}")
    if options.auto_commit or options.transactions or rng.random() >= 0.5:
        return options
    gathers = "plain" if rng.random() < 0.5 else "incremental"
    return replace(options, gathers=gathers, names_offsets=rng.random() >= 0.7)


def _drawn_later(seed: int, rates: dict[str, float], *, auto_commit: bool) -> dict[str, Any]:
    """Draw what came to be drawn later, apart: what a seed had before it still has."""
    rng = random.Random(f"more options {seed}")
    programs = tuple(sorted(PROGRAMS)) if rng.random() < 0.3 else FIRST_PROGRAMS
    if rng.random() < 0.1:
        rates["lose_offsets"] = LOSE_OFFSETS_RATE
    transactions = not auto_commit and rng.random() < 0.6
    if rng.random() < 0.1:
        rates["kip848"] = KIP848_RATE
        if rng.random() < 0.4:
            rates["foreign"] = RATES["foreign"] * 3
    converts_back = rng.random() < 0.8
    if transactions:
        for kind in NOT_WITH_TRANSACTIONS:
            rates.pop(kind, None)
    return {
        "programs": programs,
        "transactions": transactions,
        "rates": tuple(sorted(rates.items())),
        "converts_back": converts_back or "kip848" not in rates,
    }

"""What holds for every baseline in every group: never fewer replicas than without it, and nothing changed where it is
ignored."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from hash_seeds import same_under_two_hash_seeds
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.baseline_records import TopicCurve
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from unit.planning.virtual_group import TOPIC, Fleet, T, noisy, steps

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=20.0)
SECONDS = 40


@st.composite
def groups(draw: st.DrawFn) -> Fleet:
    """A group under a load of some shape, not yet begun."""
    count = draw(st.integers(2, 7))
    total = draw(st.floats(20.0, 900.0))
    if draw(st.booleans()):
        rates = noisy(count, total, draw(st.floats(0.0, 0.4)), draw(st.integers(0, 99)))
    else:
        after = total * draw(st.floats(0.1, 4.0))
        rates = steps(count, (0, total), (draw(st.integers(1, SECONDS)), after))
    config = structs.replace(CONFIG, sla_share=draw(st.sampled_from([0.9, 0.99, 0.999])))
    return Fleet(config, rates, members=draw(st.integers(1, 4)), bursts=draw(st.booleans()))


@st.composite
def curves(draw: st.DrawFn) -> TopicCurve:
    """Some minutes of anything, relative to the load of the group."""
    level = draw(st.floats(0.2, 4.0))
    shape = draw(st.lists(st.floats(0.2, 4.0), min_size=8, max_size=8))
    spread = sorted(draw(st.lists(st.floats(1.0, 3.0), min_size=2, max_size=2)))
    return TopicCurve(
        begins_at=T - 20.0,
        bucket_seconds=60.0,
        rates=tuple(level * factor for factor in shape),
        quantiles=(1.0, *spread),  # type: ignore[arg-type]
        learnt_until=T - draw(st.sampled_from([1.0, 1.0, 1.0, 9.0])) * 86_400.0,
        error=draw(st.sampled_from([None, 0.1, 0.5, 1.5])),
    )


def decided(group: Fleet, curve: TopicCurve | None, compared: bool = True) -> DecisionRecord:
    """What the leader decides next, with this memory; after an hour of a load that was as expected, if ``compared``."""
    planner = copy.deepcopy(group.planner)
    if curve is not None and compared:
        expected = max(curve.most(group.now, group.now) or 0.0, 1e-3)
        seen = group.history[-1].work
        planner._compared = replace(
            planner._compared, at=group.now, seconds=1000.0, seen=seen * 1000.0, expected=expected * group.cost * 1000.0
        )
    state = replace(group.state(), expected={TOPIC: curve} if curve is not None else {})
    return planner.decide(group.now + 1.0, state)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(groups(), st.lists(st.tuples(curves(), st.booleans()), min_size=4, max_size=4), st.integers(0, 30))
def test_never_fewer_than_without(group: Fleet, known: list[tuple[TopicCurve, bool]], startup: int) -> None:
    group.run_scaled(SECONDS, startup=startup)
    without = decided(group, None)
    for relative, compared in known:
        rate = group.history[-1].rate
        curve = replace(relative, rates=tuple(level * rate for level in relative.rates))
        with_it = decided(group, curve, compared)
        assert with_it.replicas_wanted >= without.replicas_wanted
        assert with_it.forecast >= without.forecast
        used = with_it.baseline is not None and with_it.baseline.used
        event(f"used: {used}, more: {with_it.replicas_wanted > without.replicas_wanted}")
        if not used:
            assert _substance(with_it) == _substance(without)


def _substance(decision: DecisionRecord) -> DecisionRecord:
    return msgspec.structs.replace(decision, baseline=None, reason="")


SCRIPT = """
from msgspec.structs import replace
import msgspec
from property.test_baselines import CONFIG, TOPIC, T, Fleet, TopicCurve, noisy
group = Fleet(CONFIG, noisy(5, 150.0, 0.2, 3), members=2)
curve = TopicCurve(
    begins_at=T, bucket_seconds=60.0, rates=(150.0, 300.0) * 3, quantiles=(1.0, 1.1, 1.2), learnt_until=T
)
for _ in range(45):
    group.tick()
    state = replace(group.state(), expected={TOPIC: curve, "another": replace(curve, rates=(10.0, 90.0) * 3)})
    print(msgspec.json.encode(group.planner.decide(group.now, state)).decode())
"""


@pytest.mark.slow
def test_one_input_gives_one_answer() -> None:
    assert '"used":true' in same_under_two_hash_seeds(SCRIPT)

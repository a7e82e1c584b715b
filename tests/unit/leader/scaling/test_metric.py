"""What is published, for how long, and what keeps it up; in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from unit.leader.scaling.fake_group import FakeGroup

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]
PODS = tuple(f"payments-{number}" for number in range(5))


def wish(
    replicas: int, victims: tuple[str, ...] = (), there: tuple[str, ...] = PODS, unknown: int = 0, generation: int = 7
) -> ScaleRequest:
    return ScaleRequest(
        group="payments",
        replicas=replicas,
        victims=victims,
        staying=tuple(pod for pod in there if pod not in victims),
        unknown=unknown,
        generation=generation,
        sequence=1,
    )


class Bench:
    def __init__(self, ordered: bool = False) -> None:
        self.group = FakeGroup()
        target = parse_target("statefulset/payments") if ordered else None
        self.scaler = MetricScaler(self.group, self.group, target)

    @staticmethod
    def clock() -> float:
        return asyncio.get_running_loop().time()

    async def ask(self, wanted: ScaleRequest) -> ScaleOutcome:
        return await self.scaler.request(wanted)


async def test_more_is_published_at_once() -> None:
    bench = Bench()
    assert bench.scaler.published() is None
    outcome = await bench.ask(wish(8))
    assert (outcome.answer, bench.scaler.published(), bench.clock()) == (Answer.ACCEPTED, 8, 0.0)


async def test_pods_that_are_not_in_the_group_hold_nothing_up() -> None:
    """They start, or never will: the controllers take them first."""
    bench = Bench()
    await bench.ask(wish(8))
    assert (await bench.ask(wish(5))).accepted
    assert bench.scaler.published() == 5


async def test_a_number_is_lowered_when_the_victim_is_known_not_to_be_ready() -> None:
    bench = Bench()
    asked = asyncio.create_task(bench.ask(wish(4, ("payments-2",))))
    await asyncio.sleep(3.0)
    assert bench.scaler.published() == 5, "a ready pod would go in its place"
    assert not asked.done()
    bench.group.unready = {"payments-2"}
    assert (await asked).accepted
    assert bench.scaler.published() == 4
    assert bench.clock() <= 3.5


async def test_each_victim_lowers_it_by_one_when_its_time_has_come() -> None:
    bench = Bench()
    asked = asyncio.create_task(bench.ask(wish(3, ("payments-2", "payments-4"))))
    bench.group.unready = {"payments-4"}
    await asyncio.sleep(1.0)
    assert bench.scaler.published() == 4
    bench.group.unready.add("payments-2")
    assert (await asked).accepted
    assert bench.scaler.published() == 3


async def test_a_victim_that_no_probe_asks_is_named_after_a_while() -> None:
    bench = Bench()
    outcome = await bench.ask(wish(4, ("payments-2",)))
    assert outcome.answer is Answer.FAILED
    assert outcome.detail.startswith("5 replicas are published: payments-2 is drained, and its readiness probe")
    assert 10.0 <= bench.clock() < 11.0
    assert bench.scaler.published() == 5


async def test_a_rollouts_surplus_is_not_published() -> None:
    bench = Bench()
    assert (await bench.ask(structs.replace(wish(3, unknown=1), rollout=True))).accepted
    assert bench.scaler.published() == 3


async def test_members_that_are_not_known_may_be_on_pods_that_work() -> None:
    bench = Bench()
    outcome = await bench.ask(wish(5, unknown=2))
    assert outcome.answer is Answer.FAILED
    assert bench.scaler.published() == 7


async def test_nothing_is_shown_by_a_leader_that_was_frozen_or_leads_no_longer() -> None:
    """The number of an older leadership would undo what another leader has asked for since."""
    bench = Bench()
    await bench.ask(wish(4, there=PODS[:4]))
    bench.group.led = None  # the lease has run out
    assert bench.scaler.published() is None
    bench.group.led = 9  # it leads again, and another member did meanwhile
    assert bench.scaler.published() is None
    outcome = await bench.ask(wish(6))
    assert (outcome.answer, bench.scaler.published()) == (Answer.FAILED, None)
    assert (await bench.ask(wish(6, generation=9))).accepted
    assert bench.scaler.published() == 6


async def test_a_wait_ends_where_the_generation_does() -> None:
    bench = Bench()
    asked = asyncio.create_task(bench.ask(wish(4, ("payments-2",))))
    await asyncio.sleep(1.0)
    bench.group.led = 8
    assert (await asked).answer is Answer.FAILED
    assert bench.clock() <= 1.5


async def test_a_number_that_is_withdrawn_is_shown_no_more() -> None:
    """An autoscaler that reads nothing leaves the workload as somebody has set it by hand."""
    bench = Bench()
    await bench.ask(wish(8))
    bench.scaler.withdraw()
    assert bench.scaler.published() is None
    await bench.ask(wish(6))
    assert bench.scaler.published() == 6


async def test_close_takes_the_number_back_and_ends_a_wait() -> None:
    bench = Bench()
    asked = asyncio.create_task(bench.ask(wish(4, ("payments-2",))))
    await asyncio.sleep(1.0)
    await bench.scaler.close()
    assert (await asked).answer is Answer.FAILED
    assert bench.clock() <= 1.5
    assert bench.scaler.published() is None


# A StatefulSet's pods go by their numbers


@pytest.mark.parametrize(
    ("there", "victims", "replicas", "published", "why"),
    [
        (PODS, ("payments-4",), 4, 4, ""),
        (PODS, ("payments-3", "payments-4"), 3, 3, ""),
        (PODS, ("payments-3",), 4, 5, "the pod of number 4 would go first"),
        (("payments-0", "payments-3", "payments-4"), ("payments-4",), 2, 4, "the pod of number 3 would go first"),
        (("payments-0", "worker"), ("worker",), 1, 2, "worker is none of the StatefulSet's pods"),
        (PODS[:2], (), 6, 6, ""),
    ],
)
async def test_what_may_go_of_a_statefulset(
    there: tuple[str, ...], victims: tuple[str, ...], replicas: int, published: int, why: str
) -> None:
    bench = Bench(ordered=True)
    outcome = await bench.ask(wish(replicas, victims, there))
    assert (bench.scaler.published(), outcome.accepted) == (published, not why)
    assert why in outcome.detail


async def test_nothing_of_a_statefulset_goes_while_a_pod_is_not_known() -> None:
    bench = Bench(ordered=True)
    assert not (await bench.ask(wish(4, ("payments-4",), unknown=1))).accepted
    assert bench.scaler.published() == 6
    assert not (await bench.ask(wish(2, ("payments-4",), ("payments-0", "payments-4"), unknown=1))).accepted
    assert bench.scaler.published() == 5, "number 4 would go, and the one that is not known might be 3"


async def test_it_says_whether_anybody_has_read_the_number() -> None:
    bench = Bench()
    assert (
        await bench.ask(wish(8))
    ).detail == "8 replicas are published, and nobody has read the number from this member yet"
    assert bench.scaler.published() == 8
    assert (await bench.ask(wish(8))).detail == "8 replicas are published"

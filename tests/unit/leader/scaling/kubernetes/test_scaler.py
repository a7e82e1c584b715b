"""The replicas of a workload: raised at once, lowered when no ready pod would go, and never against another writer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.foreign import FOREIGN_MAX, FOREIGN_SECONDS
from loadtrim_agent.leader.scaling.kubernetes.lease import Claim
from loadtrim_agent.leader.scaling.kubernetes.lease_renewal import HOLD_SECONDS, LeaseRenewal
from loadtrim_agent.leader.scaling.kubernetes.manager import field_manager
from loadtrim_agent.leader.scaling.kubernetes.scaler import (
    CONFLICTS_MAX,
    READINESS_SECONDS,
    UNWELL_SECONDS,
    Foreign,
    KubernetesScaler,
)
from loadtrim_agent.leader.scaling.kubernetes.target import Target, parse_target
from loadtrim_agent.leader.scaling.kubernetes.workload import Workload, not_yet
from loadtrim_agent.leader.scaling.port import Answer, ScaleRequest
from loadtrim_agent.leader.scaling.reconciler import ScaleReconciler
from unit.leader.scaling.kubernetes.fake_cluster import FakeCluster, OpenFence

pytestmark = pytest.mark.looptime
DEPLOYMENT = parse_target("deployment/payments")
STATEFULSET = parse_target("statefulset/payments")


class Bench:
    """A scaler and its cluster."""

    def __init__(
        self,
        replicas: int = 3,
        ready: int | None = None,
        target: Target | None = DEPLOYMENT,
        foreign: Foreign = "correct",
    ) -> None:
        self.cluster = FakeCluster(replicas, ready)
        self.fence = OpenFence()
        self.now = 1000.0
        self.scaler = KubernetesScaler(target, self.cluster, self.fence, foreign, clock=lambda: self.now)

    async def ask(
        self, replicas: int, *victims: str, staying: tuple[str, ...] = (), unknown: int = 0
    ) -> tuple[Answer, str]:
        request = wanted(replicas, *victims, staying=staying)
        outcome = await self.scaler.request(msgspec.structs.replace(request, unknown=unknown))
        return outcome.answer, outcome.detail


def wanted(replicas: int, *victims: str, group: str = "g", staying: tuple[str, ...] = ()) -> ScaleRequest:
    return ScaleRequest(group=group, replicas=replicas, victims=victims, staying=staying, generation=1, sequence=1)


def pods(*numbers: int) -> tuple[str, ...]:
    return tuple(f"payments-{number}" for number in numbers)


@pytest.mark.parametrize("foreign", ["correct", "respect"])
async def test_a_workload_that_is_set_to_0_stays_so(foreign: Foreign) -> None:
    """``kubectl scale --replicas=0``: a pod that was to end wrote the number of before."""
    bench = Bench(3, foreign=foreign)
    await bench.ask(3)
    bench.cluster.change(0, "kubectl")
    for _ in range(4):
        answer, detail = await bench.ask(3, "payments-2")
        assert answer is Answer.REFUSED
        assert "set to 0 replicas by 'kubectl', which stops the group" in detail
    assert bench.cluster.writes == []
    bench.cluster.change(2, "kubectl")
    bench.cluster.set_ready(2)
    if foreign == "correct":
        assert (await bench.ask(3))[0] is Answer.ACCEPTED


async def test_more_replicas_are_written_at_once() -> None:
    bench = Bench(2, ready=0)
    assert await bench.ask(5) == (Answer.ACCEPTED, "deployments/payments: 2 -> 5")
    assert bench.cluster.writes == [5]


async def test_nothing_is_written_where_the_replicas_are_as_wanted() -> None:
    bench = Bench(3)
    assert (await bench.ask(3))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == []
    assert bench.cluster.reads == 1


async def test_fewer_replicas_wait_until_the_victim_is_seen_as_not_ready() -> None:
    """Written before, the controllers could take a pod that works."""
    bench = Bench(3)
    request = asyncio.create_task(bench.ask(2, "payments-b"))
    await asyncio.sleep(3.0)
    assert bench.cluster.writes == []
    bench.cluster.set_ready(2)
    assert (await request)[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [2]


WORKING = ("payments-a", "payments-c")


async def test_a_pod_that_works_and_fails_one_probe_is_given_time_for_the_next() -> None:
    """It would go in place of the victim: neither is ready."""
    bench = Bench(3, ready=1)
    request = asyncio.create_task(bench.ask(2, "payments-b", staying=WORKING))
    await asyncio.sleep(2.0)
    assert bench.cluster.writes == []
    bench.cluster.set_ready(2)
    assert (await request)[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [2]


async def test_a_pod_that_works_and_stays_unready_is_not_well_and_may_go() -> None:
    bench = Bench(3, ready=1)
    began = asyncio.get_running_loop().time()
    assert (await bench.ask(2, "payments-b", staying=WORKING))[0] is Answer.ACCEPTED
    assert UNWELL_SECONDS <= asyncio.get_running_loop().time() - began <= UNWELL_SECONDS + 1.0


async def test_each_failed_probe_has_its_own_time() -> None:
    bench = Bench(3, ready=1)
    request = asyncio.create_task(bench.ask(2, "payments-b", staying=WORKING))
    await asyncio.sleep(4.0)
    bench.cluster.set_ready(3)
    await asyncio.sleep(2.0)
    bench.cluster.set_ready(1)
    await asyncio.sleep(4.0)
    assert bench.cluster.writes == []
    bench.cluster.set_ready(2)
    assert (await request)[0] is Answer.ACCEPTED


async def test_pods_that_are_not_in_the_group_are_not_waited_for() -> None:
    """They are Pending, or crash again and again, and go first; so none of the workload's surplus need ever start."""
    bench = Bench(8, ready=2)
    began = asyncio.get_running_loop().time()
    assert (await bench.ask(5, staying=WORKING))[0] is Answer.ACCEPTED
    assert asyncio.get_running_loop().time() - began < 0.1


async def test_fewer_replicas_are_not_written_where_a_ready_pod_would_go() -> None:
    bench = Bench(3)
    began = asyncio.get_running_loop().time()
    answer, detail = await bench.ask(2, "payments-b")
    assert answer is Answer.FAILED
    assert (
        detail == "deployments/payments stays at 3: 3 pods are ready, payments-b is drained, and a ready one would go"
    )
    assert READINESS_SECONDS <= asyncio.get_running_loop().time() - began <= READINESS_SECONDS + 1.0
    assert bench.cluster.writes == []


async def test_pods_that_are_not_ready_go_before_a_victim() -> None:
    bench = Bench(3, ready=2)
    assert (await bench.ask(2))[0] is Answer.ACCEPTED


async def test_counts_of_an_older_wish_count_for_nothing() -> None:
    bench = Bench(3, ready=2)
    bench.cluster.generation += 1
    answer, detail = await bench.ask(2)
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "have not seen the workload's last change" in detail


async def test_a_rollout_is_not_made_smaller_but_larger() -> None:
    bench = Bench(3, ready=2)
    bench.cluster.old_pods = 1
    answer, detail = await bench.ask(2)
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "a rollout is under way" in detail
    assert (await bench.ask(4))[0] is Answer.ACCEPTED


async def test_a_rollout_that_only_the_group_knows_of_is_not_made_smaller() -> None:
    """The counts of the workload are those of the controllers, which may not have begun."""
    bench = Bench(3, ready=2)
    request = msgspec.structs.replace(wanted(2), rollout=True)
    outcome = await bench.scaler.request(request)
    assert (outcome.answer, bench.cluster.writes) == (Answer.FAILED, [])


async def test_a_statefulset_gives_nothing_while_a_member_has_not_told_its_pod() -> None:
    bench = Bench(4, target=STATEFULSET)
    answer, detail = await bench.ask(3, "payments-3", staying=pods(0, 1), unknown=1)
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "have not told their pod yet: 1" in detail
    assert (await bench.ask(3, "payments-3", staying=pods(0, 1, 2)))[0] is Answer.ACCEPTED


async def test_who_came_while_a_request_waits_is_spared() -> None:
    """It waited for a victim with the list of those who stayed; the pod that came meanwhile was on none."""
    bench = Bench(4, target=STATEFULSET)
    reconciler = ScaleReconciler(bench.scaler)
    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        reconciler.observed(3, pods(0, 1, 2))
        bench.cluster.generation = 2  # the controllers have not seen the last change
        reconciler.want(wanted(3, staying=pods(0, 1, 2)))
        await asyncio.sleep(1.0)
        reconciler.want(wanted(3, staying=pods(0, 1, 2, 3)))
        bench.cluster.observed = 2
        bench.cluster.version += 1
        await asyncio.sleep(5.0)
        await reconciler.close()
    assert bench.cluster.writes == []


async def test_a_statefulset_gives_its_highest_numbers_once_they_are_drained() -> None:
    bench = Bench(4, target=STATEFULSET)
    answer, detail = await bench.ask(2, "payments-3", staying=pods(0, 1, 2))
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "payments-2 would go first and is not drained" in detail
    assert (await bench.ask(2, "payments-3", "payments-2", staying=pods(0, 1)))[0] is Answer.ACCEPTED


async def test_a_statefulset_gives_pods_that_are_not_in_the_group() -> None:
    """One of the highest number that never starts would keep it from getting smaller for ever."""
    bench = Bench(5, target=STATEFULSET)
    assert (await bench.ask(3, staying=pods(0, 1, 2)))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [3]


async def test_a_statefulset_keeps_a_pod_that_works_above_one_that_does_not_start() -> None:
    bench = Bench(5, target=STATEFULSET)
    answer, detail = await bench.ask(4, staying=pods(0, 1, 2, 4))
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "payments-4 would go first" in detail


@pytest.mark.parametrize("name", ["laptop", "payment-1", "payments-x", "payments-01"])
async def test_a_statefulset_whose_pods_are_called_otherwise_is_not_made_smaller(name: str) -> None:
    bench = Bench(2, target=STATEFULSET)
    answer, detail = await bench.ask(1, staying=(name,))
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "LOADTRIM_INSTANCE has to be the pod's name" in detail
    assert (await bench.ask(3, staying=(name,)))[0] is Answer.ACCEPTED


async def test_a_statefulset_counts_from_the_number_that_it_starts_at() -> None:
    bench = Bench(4, target=STATEFULSET)
    bench.cluster.ordinals = {"start": 5}
    answer, detail = await bench.ask(3, "payments-5", staying=pods(6, 7, 8))
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "payments-8 would go first and is not drained" in detail
    assert (await bench.ask(3, "payments-8", staying=pods(5, 6, 7)))[0] is Answer.ACCEPTED


async def test_a_resource_that_does_not_count_ready_pods_is_made_larger_only() -> None:
    """What it leaves out is no zero: all of its pods may work."""
    bench = Bench(3, ready=0, target=parse_target("example.com/v2/workers/payments"))
    answer, detail = await bench.ask(2, "payments-b")
    assert (answer, bench.cluster.writes) == (Answer.REFUSED, [])
    assert "readyReplicas" in detail
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    bench.cluster.set_ready(2)
    assert (await bench.ask(3))[0] is Answer.ACCEPTED


def test_of_a_kind_that_does_not_count_by_template_no_rollout_is_seen() -> None:
    """A ReplicaSet was never made smaller: a rollout was under way for good."""
    metadata = {"resourceVersion": "1", "generation": 4}
    status = {"replicas": 3, "readyReplicas": 2}
    workload = Workload.read({"metadata": metadata, "spec": {"replicas": 3}, "status": status})
    request = wanted(2, "payments-b")
    assert not_yet(parse_target("apps/v1/replicasets/payments"), workload, request) == ""
    assert "have not seen" in not_yet(DEPLOYMENT, workload, request)
    seen = Workload.read({"metadata": metadata, "spec": {"replicas": 3}, "status": status | {"observedGeneration": 4}})
    assert "rollout" in not_yet(DEPLOYMENT, seen, request)


async def test_a_deployment_that_leaves_the_count_out_has_no_ready_pod() -> None:
    assert (await Bench(3, ready=0).ask(2))[0] is Answer.ACCEPTED


@pytest.mark.parametrize("newer", [5, 6])
async def test_a_newer_wish_ends_the_wait_for_a_victim(newer: int) -> None:
    """Carried out late, a withdrawn scale-down would end a pod that owns partitions again."""
    bench = Bench(5)
    reconciler = ScaleReconciler(bench.scaler)
    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        reconciler.observed(5, ["payments-a", "payments-b"])
        reconciler.want(wanted(5))
        await asyncio.sleep(1.0)
        reconciler.want(wanted(4, "payments-b"))
        await asyncio.sleep(1.1)
        reconciler.want(wanted(newer))
        bench.cluster.set_ready(4)
        await asyncio.sleep(0.1)
        assert reconciler.view().delivered
        await asyncio.sleep(1.0)
        await reconciler.close()
    assert bench.cluster.writes == ([6] if newer == 6 else [])


async def test_a_change_in_between_is_read_before_anything_is_written() -> None:
    bench = Bench(3, ready=2)
    changes = iter((lambda: bench.cluster.set_ready(3), lambda: bench.cluster.set_ready(2)))
    bench.cluster.before_write = lambda: next(changes, lambda: None)()
    assert (await bench.ask(2, "payments-b"))[0] is Answer.FAILED, "it is ready again, so it is not written"
    assert bench.cluster.writes == []


async def test_a_workload_that_changes_all_the_time_is_a_failure() -> None:
    bench = Bench(3)
    bench.cluster.before_write = lambda: bench.cluster.set_ready(bench.cluster.ready)
    answer, detail = await bench.ask(4)
    assert answer is Answer.FAILED
    assert detail.startswith("409 ")
    assert bench.cluster.reads == CONFLICTS_MAX + 1


async def test_without_a_lease_nothing_is_written() -> None:
    """A leader that was frozen would write what it wanted then."""
    bench = Bench(3)
    bench.fence.open = False
    answer, detail = await bench.ask(5)
    assert (answer, bench.cluster.writes) == (Answer.FAILED, [])
    assert "lease" in detail


async def test_a_foreign_change_is_told_with_its_writer_and_corrected(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(3)
    await bench.ask(4)
    bench.cluster.change(9, "helm-upgrade")
    bench.cluster.set_ready(4)
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [4, 4]
    assert "helm-upgrade changed the replicas from 4 to 9" in caplog.text


async def test_a_respected_change_stands_until_another_number_is_wanted() -> None:
    bench = Bench(3, foreign="respect")
    await bench.ask(4)
    bench.cluster.change(6)
    for _ in range(3):
        answer, detail = await bench.ask(4)
        assert answer is Answer.REFUSED
        assert "left at the 6" in detail
    assert (await bench.ask(7))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [4, 7]


async def test_victims_that_drain_do_not_take_back_that_a_change_is_respected() -> None:
    """Three are wanted, and two that drain beside them make up the foreign number. It was forgotten, and lowered."""
    bench = Bench(3, foreign="respect")
    await bench.ask(3)
    bench.cluster.change(5)
    assert (await bench.ask(3))[0] is Answer.REFUSED
    assert (await bench.ask(5))[0] is Answer.ACCEPTED
    bench.cluster.set_ready(3)
    answer, detail = await bench.ask(3, "payments-3", "payments-4")
    assert answer is Answer.REFUSED
    assert "left at the 5" in detail
    assert bench.cluster.writes == []


async def test_a_victim_that_stays_ready_is_looked_after_without_end_but_not_four_times_a_second() -> None:
    """A pod without a readiness probe: each request waited ten seconds with 40 reads, and the next one came at once."""
    bench = Bench(3)
    assert (await bench.ask(2, "payments-b"))[0] is Answer.FAILED
    reads = bench.cluster.reads
    for _ in range(3):
        assert (await bench.ask(2, "payments-b"))[0] is Answer.FAILED
    assert bench.cluster.reads == reads + 3
    other = asyncio.create_task(bench.ask(2, "payments-c"))
    await asyncio.sleep(3.0)
    assert not other.done(), "of another victim nothing is known"
    other.cancel()
    bench.cluster.set_ready(2)
    assert (await bench.ask(2, "payments-b"))[0] is Answer.ACCEPTED
    bench.cluster.change(3)
    bench.cluster.set_ready(3)
    again = asyncio.create_task(bench.ask(2, "payments-b"))
    await asyncio.sleep(3.0)
    assert not again.done(), "it has been carried out since"
    again.cancel()


@pytest.mark.parametrize("drain", [1, 2])
async def test_a_respected_change_counts_by_what_is_wanted_once_all_have_drained(drain: int) -> None:
    """The extra pods were to go, and drained: what was asked for while they did made up another number."""
    bench = Bench(3, foreign="respect")
    await bench.ask(3)
    bench.cluster.change(5)
    draining = msgspec.structs.replace(wanted(3 + drain), settled=3)
    await bench.scaler.request(draining)
    outcome = await bench.scaler.request(wanted(3, "payments-3", "payments-4"))
    assert (outcome.answer, outcome.stands) == (Answer.REFUSED, 5)
    assert (await bench.scaler.request(draining)).stands == (5 if drain == 1 else None)
    bench.cluster.set_ready(2)
    assert (await bench.ask(2))[0] is Answer.ACCEPTED, "another number is wanted"
    assert bench.cluster.writes == [2]


async def test_the_groups_number_is_its_own_though_a_tool_has_applied_it_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another leader of the group wrote it, and a tool that applies what is there became a writer as well."""
    bench = Bench(5, foreign="respect")
    await bench.ask(5)
    bench.cluster.change(4, "loadtrim-g")
    bench.cluster.applied_by = "argocd-controller"
    assert (await bench.ask(6))[0] is Answer.ACCEPTED
    assert "changed the replicas" not in caplog.text


async def test_another_autoscaler_is_left_alone_after_some_changes(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(3)
    await bench.ask(4)
    for _ in range(FOREIGN_MAX):
        bench.now += 15.0
        bench.cluster.change(3, "kube-controller-manager")
        answer, detail = await bench.ask(4)
    assert answer is Answer.REFUSED
    assert "changed by another writer" in detail
    assert "take away the other autoscaler" in caplog.text
    assert len(bench.cluster.writes) == FOREIGN_MAX
    bench.now += FOREIGN_SECONDS
    assert (await bench.ask(4))[0] is Answer.ACCEPTED, "a Helm upgrade must not stop it for ever"


async def test_a_foreign_number_whose_pods_never_join_is_corrected_within_a_minute() -> None:
    """The group was as wanted, so nobody looked: five pods without an image stayed for ever."""
    bench = Bench(2, ready=3)
    reconciler = ScaleReconciler(bench.scaler)
    running = asyncio.create_task(reconciler.run())
    reconciler.observed(3, pods(0, 1, 2))
    reconciler.want(wanted(3, staying=pods(0, 1, 2)))
    await asyncio.sleep(5.0)
    assert bench.cluster.replicas == 3
    bench.cluster.change(8, "kubectl")
    reads = bench.cluster.reads
    await asyncio.sleep(60.0)
    assert bench.cluster.replicas == 3
    await asyncio.sleep(600.0)
    assert bench.cluster.reads - reads <= 15, "one look a minute"
    await reconciler.close()
    await running


@pytest.mark.parametrize("foreign", ["correct", "respect"])
async def test_what_another_leader_of_the_group_wrote_is_not_foreign(
    foreign: Foreign, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(3, foreign=foreign)
    other = KubernetesScaler(DEPLOYMENT, bench.cluster, bench.fence, foreign)
    for _ in range(2 * FOREIGN_MAX):
        assert (await bench.ask(4))[0] is Answer.ACCEPTED
        assert (await other.request(wanted(5))).accepted
    assert bench.cluster.writes == [4, 5] * 2 * FOREIGN_MAX
    assert not caplog.records


@pytest.mark.parametrize("foreign", ["correct", "respect"])
async def test_a_write_whose_answer_is_lost_is_not_foreign(foreign: Foreign, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(3, foreign=foreign)
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    bench.cluster.loses_answer = True
    assert (await bench.ask(5))[0] is Answer.FAILED
    assert (await bench.ask(6))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [4, 5, 6]
    assert not caplog.records


async def test_a_number_of_somebody_else_is_forgotten_with_the_next_of_ours() -> None:
    """What is respected is the foreign number, not every later one of the same size."""
    bench = Bench(3, foreign="respect")
    await bench.ask(4)
    bench.cluster.change(6)
    assert (await bench.ask(4))[0] is Answer.REFUSED
    bench.cluster.change(7, "loadtrim-g")
    bench.cluster.change(6, "loadtrim-g")
    bench.cluster.set_ready(4)
    assert (await bench.ask(4))[0] is Answer.ACCEPTED


@pytest.mark.parametrize("foreign", ["correct", "respect"])
async def test_of_two_groups_on_one_workload_the_one_that_wrote_scales_it(foreign: Foreign) -> None:
    """Each would correct the other for ever."""
    bench = Bench(3, foreign=foreign)
    other = KubernetesScaler(DEPLOYMENT, bench.cluster, bench.fence, foreign)
    for _ in range(2 * FOREIGN_MAX):
        assert (await bench.ask(4))[0] is Answer.ACCEPTED
        refused = await other.request(wanted(6, group="orders"))
        assert refused.answer is Answer.REFUSED
    assert refused.detail == (
        "Two groups scale deployments/payments: 'g' set its 4 replicas, 'orders' wants 6 and holds. Give each a "
        "workload of its own, or LOADTRIM_SCALER=none to one. If the former is gone: kubectl scale "
        "deployments/payments --replicas=6"
    )
    assert bench.cluster.writes == [4]


async def test_a_group_that_was_the_first_holds_as_well_once_another_one_has_written() -> None:
    bench = Bench(3)
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    bench.cluster.change(9, "loadtrim-orders")
    for _ in range(2):
        answer, detail = await bench.ask(4)
        assert answer is Answer.REFUSED
        assert "'orders' set its 9 replicas, 'g' wants 4 and holds" in detail
    assert bench.cluster.writes == [4]


async def test_two_groups_that_want_the_same_number_are_told() -> None:
    bench = Bench(3)
    bench.cluster.change(4, "loadtrim-orders")
    assert await bench.ask(4) == (
        Answer.ACCEPTED,
        "deployments/payments has 4 replicas, which the group 'orders' set; 1 of 4 pods are not ready",
    )


async def test_a_number_that_a_tool_applies_as_well_is_still_the_other_group_s() -> None:
    """Argo CD with the number that the group has at that moment: the API server names both, and the tool last."""
    bench = Bench(3)
    bench.cluster.change(4, "loadtrim-orders")
    bench.cluster.applied_by = "argocd-controller"
    assert (await bench.ask(6))[0] is Answer.REFUSED
    other = KubernetesScaler(DEPLOYMENT, bench.cluster, bench.fence)
    assert (await other.request(wanted(5, group="orders"))).accepted
    assert bench.cluster.writes == [5]


async def test_once_somebody_has_scaled_by_hand_the_workload_belongs_to_nobody() -> None:
    """The command that a refusal names ends it."""
    bench = Bench(3)
    bench.cluster.change(9, "loadtrim-orders")
    bench.cluster.set_ready(4)
    assert (await bench.ask(4))[0] is Answer.REFUSED
    bench.cluster.change(5, "kubectl")
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    assert bench.cluster.writer == "loadtrim-g"


async def test_what_to_do_is_told_whatever_the_groups_are_called() -> None:
    bench = Bench(3)
    bench.cluster.change(9, field_manager("o" * 200))
    outcome = await bench.scaler.request(wanted(4, group="g" * 200))
    assert outcome.answer is Answer.REFUSED
    assert outcome.detail.endswith("kubectl scale deployments/payments --replicas=4")


async def test_changes_long_apart_are_no_other_autoscaler() -> None:
    bench = Bench(3)
    for _ in range(2 * FOREIGN_MAX):
        assert (await bench.ask(4))[0] is Answer.ACCEPTED
        bench.now += FOREIGN_SECONDS
        bench.cluster.change(3)


ANSWERS: list[dict[str, object]] = [
    {},
    {"metadata": {"resourceVersion": "1", "generation": 1}, "spec": {"replicas": 3}},
    {"metadata": {"resourceVersion": "1", "generation": 1}, "spec": {"replicas": 3}, "status": {}},
    {"metadata": {"resourceVersion": "1"}, "status": {"readyReplicas": 0}},
    {"kind": "Status", "status": "Failure", "metadata": {}},
    {"kind": "List", "items": []},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=["empty", "no status", "empty status", "no spec", "failure", "list"])
async def test_an_answer_that_lacks_something_lowers_nothing(answer: dict[str, object]) -> None:
    """What is not said is no zero: all pods may work."""
    bench = Bench(3, ready=0)
    bench.cluster.document = lambda target: answer  # type: ignore[method-assign]
    told, detail = await bench.ask(2, "payments-b")
    assert (told, bench.cluster.writes) == (Answer.FAILED, [])
    assert detail


@pytest.mark.parametrize("failure", [ApiError(0, "the API server gave no answer within 5 s"), ApiError(500, "etcd")])
async def test_an_answer_that_is_missing_while_a_victim_is_waited_for_lowers_nothing(failure: ApiError) -> None:
    bench = Bench(3)
    request = asyncio.create_task(bench.ask(2, "payments-b"))
    await asyncio.sleep(1.0)
    bench.cluster.fails.append(failure)
    assert (await request)[0] is Answer.FAILED
    assert bench.cluster.writes == []
    bench.cluster.set_ready(2)
    assert (await bench.ask(2, "payments-b"))[0] is Answer.ACCEPTED


@pytest.mark.parametrize("reads", [0, 1], ids=["at once", "after another number was read"])
async def test_only_an_answer_that_comes_before_the_first_read_saw_nothing(reads: int) -> None:
    bench = Bench(3)
    bench.cluster.fails.extend([None] * reads + [ApiError(503, "away")])
    outcome = await bench.scaler.request(wanted(2, "payments-b"))
    assert (outcome.answer, outcome.unseen) == (Answer.FAILED, reads == 0)


async def test_after_minutes_without_an_api_server_the_newest_wish_is_written() -> None:
    """Not those that were decided meanwhile, and none of them more than once in ten seconds."""
    bench = Bench(3)
    reconciler = ScaleReconciler(bench.scaler)
    away = ApiError(0, "the API server cannot be talked to: refused")
    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        bench.cluster.fails.extend([away] * 100)
        for replicas in (5, 8, 6):
            reconciler.observed(3, pods(0, 1, 2))
            reconciler.want(wanted(replicas, staying=pods(0, 1, 2)))
            await asyncio.sleep(100.0)
        assert bench.cluster.writes == []
        asked = 100 - len(bench.cluster.fails)
        assert asked <= 300 / 10 + 5 + 3
        bench.cluster.fails.clear()
        await asyncio.sleep(11.0)
        assert reconciler.view().delivered
        await reconciler.close()
    assert bench.cluster.writes == [6]


async def test_pods_that_never_start_are_no_storm() -> None:
    """For an hour the wish is looked at every ten seconds, and written once."""
    bench = Bench(3)
    reconciler = ScaleReconciler(bench.scaler)
    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        for sequence in range(3600):
            reconciler.observed(3, pods(0, 1, 2))
            reconciler.want(msgspec.structs.replace(wanted(8, staying=pods(0, 1, 2)), sequence=sequence))
            await asyncio.sleep(1.0)
        assert reconciler.view().detail == "deployments/payments has 8 replicas; 5 of 8 pods are not ready"
        await reconciler.close()
    assert bench.cluster.writes == [8]
    assert bench.cluster.reads <= 3600 / 10 + 1


NO_RIGHT = (
    'deployments.apps "payments" is forbidden: User "system:serviceaccount:shop:payments" cannot patch resource '
    '"deployments/scale" in API group "apps" in the namespace "shop"'
)


@pytest.mark.parametrize(
    ("status", "answer", "hint"),
    [
        (403, Answer.REFUSED, "no right of the Role"),
        (404, Answer.REFUSED, "set LOADTRIM_KUBERNETES_TARGET"),
        (422, Answer.REFUSED, "422"),
        (401, Answer.FAILED, "401"),
        (429, Answer.FAILED, "429"),
        (500, Answer.FAILED, "500"),
        (0, Answer.FAILED, "as told"),
    ],
)
async def test_what_the_api_server_refuses_is_told(status: int, answer: Answer, hint: str) -> None:
    bench = Bench(3)
    bench.cluster.fails.append(ApiError(status, "as told"))
    told, detail = await bench.ask(5)
    assert told is answer
    assert hint in detail
    assert bench.cluster.writes == []


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (403, "get on deployments and patch on deployments/scale (apiGroups [apps], resourceNames [payments]"),
        (404, "set LOADTRIM_KUBERNETES_TARGET"),
    ],
)
async def test_a_long_message_of_the_api_server_cuts_off_no_hint(status: int, hint: str) -> None:
    bench = Bench(3)
    bench.cluster.fails.append(ApiError(status, NO_RIGHT + "; as told" * 100))
    _, detail = await bench.ask(5)
    assert detail.startswith(f"{status} ")
    assert hint in detail
    assert "User" in detail


async def test_what_an_admission_webhook_denies_is_no_missing_right() -> None:
    """It answers 403 as well, and the log sent to the Role whoever looked for the fault."""
    bench = Bench(3)
    bench.cluster.fails.extend([None, ApiError(403, 'admission webhook "size.shop" denied the request: too many')])
    answer, detail = await bench.ask(5)
    assert answer is Answer.REFUSED
    assert "no right of the Role" in detail
    assert 'admission webhook "size.shop" denied the request: too many' in detail
    assert "permit" not in detail


async def test_a_workload_that_can_be_read_and_not_be_scaled_is_told() -> None:
    """404 of its scale said that there was no such workload."""
    bench = Bench(3)
    bench.cluster.fails.extend([None, ApiError(404, "the server could not find the requested resource")])
    answer, detail = await bench.ask(5)
    assert answer is Answer.REFUSED
    assert "deployments/payments has no scale subresource, or was deleted a moment ago" in detail
    assert "There is no deployments/payments" not in detail


async def test_when_to_ask_again_is_passed_on() -> None:
    bench = Bench(3)
    bench.cluster.fails.append(ApiError(429, "slow down", 7.0))
    assert (await bench.scaler.request(wanted(5))).retry_after_seconds == 7.0


async def test_what_keeps_pods_from_being_ready_is_told() -> None:
    bench = Bench(5, ready=3)
    bench.cluster.conditions = [
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods"},
    ]
    answer, detail = await bench.ask(5)
    assert answer is Answer.ACCEPTED
    assert detail == (
        "deployments/payments has 5 replicas; 2 of 5 pods are not ready (FailedCreate: exceeded quota: pods)"
    )


async def test_pods_that_are_there_beyond_what_is_wanted_are_told() -> None:
    """A StatefulSet removes none while one below it is not ready."""
    bench = Bench(4, ready=5, target=STATEFULSET)
    bench.cluster.old_pods = 2
    answer, detail = await bench.ask(4, "payments-4", "payments-5", staying=pods(0, 1, 2, 3))
    assert answer is Answer.ACCEPTED
    assert detail == "statefulsets/payments has 4 replicas; 6 pods are there, and 5 of them are ready"


async def test_without_a_known_workload_the_setting_is_named() -> None:
    answer, detail = await Bench(target=None).ask(3)
    assert answer is Answer.REFUSED
    assert "LOADTRIM_KUBERNETES_TARGET" in detail


async def test_a_workload_that_is_being_deleted_is_left_alone() -> None:
    bench = Bench(3)
    bench.cluster.deleted = True
    assert (await bench.ask(5))[0] is Answer.REFUSED
    assert bench.cluster.writes == []


class Leased(Bench):
    """A scaler whose group holds its workload by a Lease."""

    def __init__(self, replicas: int = 3, holder: str = "loadtrim-g@k", generation: int = 1) -> None:
        super().__init__(replicas)
        self.claimed: Claim | None = Claim(holder=holder, member="m", generation=generation)
        self.join(self.cluster)

    def join(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.lease = LeaseRenewal("payments", self, cluster, clock=lambda: self.now)
        self.scaler = KubernetesScaler(DEPLOYMENT, cluster, self.fence, lease=self.lease, clock=lambda: self.now)

    def claim(self) -> Claim | None:
        return self.claimed


async def test_the_lease_is_taken_before_anything_is_written_and_asked_for_once() -> None:
    bench = Leased()
    bench.cluster.before_write = lambda: bench.cluster.lease_requests.append("write")
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    assert (await bench.ask(5))[0] is Answer.ACCEPTED
    assert bench.cluster.lease_requests == ["get", "put", "write", "write"]


async def test_who_does_not_hold_the_lease_changes_nothing() -> None:
    bench, other = Leased(), Leased(holder="loadtrim-g@elsewhere")
    other.join(bench.cluster)
    assert (await bench.ask(3))[0] is Answer.ACCEPTED, "also where nothing is to be written"
    answer, detail = await other.ask(9)
    assert answer is Answer.REFUSED
    assert "nothing was changed: the Lease payments is held by 'loadtrim-g@k'" in detail
    assert bench.cluster.writes == []


async def test_a_leader_that_wakes_up_changes_nothing_though_its_fence_and_its_version_hold() -> None:
    """Nobody has changed the workload meanwhile, so that nothing else would keep it from writing its old wish."""
    frozen, next_one = Leased(), Leased(generation=2)
    next_one.join(frozen.cluster)
    assert (await frozen.ask(4))[0] is Answer.ACCEPTED
    frozen.cluster.set_ready(4)
    assert (await next_one.ask(4))[0] is Answer.ACCEPTED
    frozen.now += HOLD_SECONDS
    answer, detail = await frozen.ask(9)
    assert answer is Answer.REFUSED
    assert "generation 2 of this group" in detail
    assert frozen.cluster.writes == [4]


async def test_a_lease_that_is_lost_while_a_victim_is_waited_for_is_missed_before_the_write() -> None:
    bench, other = Leased(), Leased(holder="loadtrim-orders@k")
    other.join(bench.cluster)
    request = asyncio.create_task(bench.ask(2, "payments-b"))
    await asyncio.sleep(1.0)
    for now in (1000.0, 1031.0):  # not renewed: its process stood still, say
        other.now = now
        outcome = await other.ask(3)
    assert outcome[0] is Answer.ACCEPTED
    bench.now += HOLD_SECONDS
    bench.cluster.set_ready(2)
    answer, detail = await request
    assert answer is Answer.REFUSED
    assert "held by 'loadtrim-orders@k'" in detail
    assert bench.cluster.writes == []


async def test_with_a_lease_the_number_of_a_group_that_has_gone_is_no_obstacle() -> None:
    bench = Leased()
    bench.cluster.change(9, "loadtrim-former")
    bench.cluster.set_ready(4)
    assert (await bench.ask(4))[0] is Answer.ACCEPTED
    assert bench.cluster.writes == [4]


async def test_a_missing_right_on_the_lease_is_told_with_its_rule() -> None:
    bench = Leased()
    bench.cluster.lease_fails = ApiError(403, 'cannot get resource "leases"')
    answer, detail = await bench.ask(4)
    assert answer is Answer.REFUSED
    assert "permit get and update on leases (apiGroups [coordination.k8s.io], resourceNames [payments]" in detail
    assert bench.cluster.writes == []


async def test_what_an_admission_webhook_denies_of_the_lease_is_no_missing_right() -> None:
    bench = Leased()
    bench.cluster.lease_fails = ApiError(403, 'admission webhook "leases.shop" denied the request')
    answer, detail = await bench.ask(4)
    assert answer is Answer.REFUSED
    assert "no right of the Role" in detail


async def test_a_lease_that_cannot_be_asked_for_is_a_failure() -> None:
    bench = Leased()
    bench.cluster.lease_fails = ApiError(0, "the API server cannot be talked to: refused", 7.0)
    outcome = await bench.scaler.request(wanted(4))
    assert (outcome.answer, outcome.retry_after_seconds) == (Answer.FAILED, 7.0)
    assert bench.cluster.writes == []

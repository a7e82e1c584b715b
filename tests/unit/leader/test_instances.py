"""Who is of which instance is known before the first report, and several processes of one are told once."""

from __future__ import annotations

from loadtrim_agent.leader.instances import Instances


def test_the_instance_of_a_member_that_has_said_nothing_is_not_known() -> None:
    """The member id stood for it: a victim that no orchestrator knows."""
    instances = Instances("pod-1")
    assert instances.of("a") is None
    instances.hear("a", "pod-2", "")
    assert instances.of("a") == "pod-2"


def test_the_newest_word_counts() -> None:
    instances = Instances("pod-1")
    instances.hear("a", "pod-2", "")
    instances.hear("a", "pod-3", "")
    assert instances.of("a") == "pod-3"


def test_what_is_no_part_of_the_group_does_not_pile_up() -> None:
    instances = Instances("pod-1")
    instances.hear("a", "pod-2", "")
    for number in range(100):
        instances.hear(f"stranger-{number}", "x", "")
    instances.forget_others({"a"})
    assert instances.of("a") == "pod-2"
    assert instances.of("stranger-0") is None
    assert instances.of("stranger-99") == "x", "the last ones may be about to join"


def test_members_that_are_remembered_are_bounded() -> None:
    instances = Instances("pod-1")
    for number in range(10_050):
        instances.hear(f"m{number}", "x", "")
    assert instances.of("m0") is None
    assert instances.of("m10049") == "x"
    assert len(instances._said) == 10_000


def test_several_processes_under_one_name_are_told_once() -> None:
    """Two consumers of one process are no news; a second process is, and a third."""
    instances = Instances("pod-1")
    instances.hear("a", "pod-1", "17-aa")
    instances.hear("b", "pod-1", "17-aa")
    assert instances.new_complaints({"a", "b"}) == []
    instances.hear("c", "pod-1", "18-bb")
    assert [line.split(":")[0] for line in instances.new_complaints({"a", "b", "c"})] == [
        "2 processes (17, 18) are the instance pod-1"
    ]
    assert instances.new_complaints({"a", "b", "c"}) == []
    instances.hear("d", "pod-1", "19-cc")
    assert instances.new_complaints({"a", "b", "c"}) == [], "it is not in the group"
    assert len(instances.new_complaints({"a", "b", "c", "d"})) == 1
    assert instances.new_complaints({"a", "b"}) == []
    assert len(instances.new_complaints({"a", "b", "c"})) == 1, "they are back"


def test_pods_of_another_workload_are_told_once_for_each_workload() -> None:
    instances = Instances("payments-7d9c5b6f4d-x2x8k")
    for member, pod in {"a": "payments-7d9c5b6f4d-x2x8k", "b": "payments-canary-5c8f7d9b6c-b2b8k"}.items():
        instances.hear(member, pod, pod)
    assert instances.new_complaints({"a", "b"}) == [], "who goes is not for Kubernetes' controllers to say"
    assert instances.new_complaints({"a"}, "payments") == []
    [line] = instances.new_complaints({"a", "b"}, "payments")
    assert "payments-canary" in line
    assert "LOADTRIM_KUBERNETES_TARGET" in line
    instances.hear("c", "payments-canary-5c8f7d9b6c-c2c8k", "other")
    assert instances.new_complaints({"a", "b", "c"}, "payments") == [], "another pod of it is no news"


def test_a_victim_is_unready_as_its_last_report_says_until_it_is_to_stay() -> None:
    """One that is taken back is ready in a second: it would have to be seen not ready anew."""
    instances = Instances("pod-1")
    instances.hear("a", "pod-2", "")
    instances.hear_readiness("pod-2", unready=True)
    assert instances.is_unready("pod-2")
    assert not instances.is_unready("pod-1")
    instances.hear_readiness("pod-2", unready=False)
    assert not instances.is_unready("pod-2")
    instances.hear_readiness("pod-2", unready=True)
    instances.stay(["pod-1", "pod-2"])
    assert not instances.is_unready("pod-2")


def test_readiness_of_what_is_no_part_of_the_group_does_not_pile_up() -> None:
    instances = Instances("pod-1")
    for number in range(100):
        instances.hear(f"stranger-{number}", f"pod-{number}", "")
        instances.hear_readiness(f"pod-{number}", unready=True)
    instances.forget_others(())
    assert len(instances._unready) <= 16

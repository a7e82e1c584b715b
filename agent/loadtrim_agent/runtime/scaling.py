"""The composition root's part that makes the scaler of the settings."""

from __future__ import annotations

from typing import Protocol

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.leader.instances import Instances
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.lease import Claim
from loadtrim_agent.leader.scaling.kubernetes.lease_renewal import LeaseRenewal
from loadtrim_agent.leader.scaling.kubernetes.manager import field_manager
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import Target, target_of
from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.none import NoneScaler
from loadtrim_agent.leader.scaling.port import Scaler
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
from loadtrim_agent.protocol.snapshot import MachineSnapshot

__all__ = ["LeaseFence", "make_scaler", "numbered", "templated"]

CHOSEN_BY_CLUSTER = frozenset({"kubernetes", "metric"})
"""Scalers whose replicas are pods that Kubernetes' controllers remove."""


class _Group(Protocol):
    def snapshot(self) -> MachineSnapshot: ...

    @property
    def cluster_id(self) -> str: ...


class LeaseFence:
    """The scaler's fence: the lease of this member, and the generation that it leads, once it has an agent.

    Implements :class:`~loadtrim_agent.leader.scaling.port.WriteFence`,
    :class:`~loadtrim_agent.leader.scaling.metric.Leadership` and
    :class:`~loadtrim_agent.leader.scaling.kubernetes.lease_renewal.Leader`.
    """

    def __init__(self) -> None:
        self._gate: DeliveryGate | None = None
        self._group: _Group | None = None

    def watch(self, gate: DeliveryGate, group: _Group) -> None:
        self._gate, self._group = gate, group

    def holds(self) -> bool:
        """Return whether the lease has not run out. By the boot-time clock, which goes on while a process is frozen."""
        return self._gate is not None and boot_time() < self._gate.lease_until

    def generation(self) -> int | None:
        """Return the generation that the member leads with a lease that holds; None: it leads none."""
        if self._group is None or not self.holds():
            return None
        group = self._group.snapshot()
        return group.generation if group.is_leader else None

    def claim(self) -> Claim | None:
        """Return by which name the member leads: of its group, and of the Kafka cluster that has elected it."""
        generation = self.generation()
        if self._group is None or generation is None:
            return None
        group = self._group.snapshot()
        holder = f"{field_manager(group.config.group)}@{self._group.cluster_id}"
        return Claim(holder=holder, member=group.member, generation=generation)


def make_scaler(settings: AgentSettings, fence: LeaseFence, instances: Instances) -> Scaler:
    """Return the scaler that the settings name.

    Raises:
        ValueError: an address or a target cannot be used.
    """
    if settings.scaler == "webhook":
        return WebhookScaler(settings.scaler_url, settings.scaler_token or None, fence=fence)
    if settings.scaler == "kubernetes":
        api = ClusterApi(settings.kubernetes_namespace)
        lease = LeaseRenewal(settings.kubernetes_lease, fence, api) if settings.kubernetes_lease else None
        return KubernetesScaler(_target_of(settings), api, fence, settings.kubernetes_foreign, lease)
    if settings.scaler == "metric":
        return MetricScaler(fence, instances, _ordered(settings))
    return NoneScaler()


def numbered(settings: AgentSettings) -> str:
    """Return the name of the StatefulSet whose replicas are the group's; empty: they are no StatefulSet's."""
    target = _ordered(settings)
    return target.name if target is not None else ""


def templated(settings: AgentSettings) -> str:
    """Return the name of the Deployment or Rollout whose replicas are the group's; empty: they are of no such one."""
    target = _chosen_by_cluster(settings)
    return target.name if target is not None and target.templated else ""


def _ordered(settings: AgentSettings) -> Target | None:
    target = _chosen_by_cluster(settings)
    return target if target is not None and target.ordered else None


def _chosen_by_cluster(settings: AgentSettings) -> Target | None:
    return _target_of(settings) if settings.scaler in CHOSEN_BY_CLUSTER else None


def _target_of(settings: AgentSettings) -> Target | None:
    return target_of(settings.kubernetes_target, settings.instance)

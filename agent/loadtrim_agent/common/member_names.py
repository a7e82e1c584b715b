"""Members of a group have ids that a broker made, and names that people know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

__all__ = ["client_of", "member_names", "shared_instances", "short_member"]

_RANDOM_PARTS = [8, 4, 4, 4, 12]
"""Letters in each part of the UUID that a broker puts behind the client id."""
_RANDOM_LETTERS = sum(_RANDOM_PARTS) + len(_RANDOM_PARTS) - 1


def client_of(member: str) -> str:
    """Return the client id in a member id; the whole of it where no broker has made it."""
    return member[: -_RANDOM_LETTERS - 1] if _has_random_part(member) else member


def short_member(member: str) -> str:
    """Return a member id with the broker's random part cut to 6 letters."""
    client = client_of(member)
    return member if client == member else member[: len(client) + 7]


def member_names(instances: Mapping[str, str | None]) -> dict[str, str]:
    """Return member id -> name: its instance, or "instance/client_id" where an instance has several members.

    Members of one instance with one client id have a part of the member id behind it. One whose instance is not known
    has that alone.

    Args:
        instances: member id -> instance, of all that are in the group; None or empty: not known.
    """
    of_instance = Counter(instances.values())
    of_client = Counter((instance, client_of(member)) for member, instance in instances.items())
    names = {}
    for member, instance in instances.items():
        client = client_of(member)
        last = client if of_client[instance, client] == 1 else short_member(member)
        if not instance:
            names[member] = short_member(member)
        else:
            names[member] = instance if of_instance[instance] == 1 else f"{instance}/{last}"
    return names


def shared_instances(instances: Mapping[str, str], processes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the instances that are several processes, with these, both sorted.

    Args:
        instances: member id -> instance; empty: not known.
        processes: member id -> process; empty: not known.
    """
    found: dict[str, set[str]] = {}
    for member, instance in instances.items():
        if instance and (process := processes.get(member)):
            found.setdefault(instance, set()).add(process)
    return {instance: tuple(sorted(each)) for instance, each in sorted(found.items()) if len(each) > 1}


def _has_random_part(member: str) -> bool:
    random = member[-_RANDOM_LETTERS:]
    return (
        len(member) > _RANDOM_LETTERS + 1
        and member[-_RANDOM_LETTERS - 1] == "-"
        and [len(part) for part in random.split("-")] == _RANDOM_PARTS
    )

"""The faults by kind: each begins, does its harm, and returns when its cause is over.

A fault draws its details from the generator it is given, so that equal seeds do the same harm at the same step. Which
members it meets depends on how the run went so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from contract.webhook_receiver import answer, garbage, hang, hang_up
from demo.journal import clock_ns
from integration.harness import eventually
from integration.harness_brokers import lead, leaders
from integration.offsets_topic import OFFSETS_TOPIC
from payments.clients import KIP_848

from .cluster import ADMIN_SECONDS, BROKERS
from .election import UncleanElection
from .evidence import Window
from .processes import PLACES
from .proxy import Hole
from .world import POLL_INTERVAL_SECONDS, SESSION_SECONDS, World

__all__ = ["ALONE", "FAULTS", "Fault"]

READY_SECONDS = 10.0
"""A deployment waits so long for new members to be ready, and goes on without them then."""
FENCED_ONCE = 4
"""Transactional members that may end by a fault of brokers or connections: both, and both successors. Measured: 2."""
FENCED_ALL = 20
"""The same where all are refused, and started again each half second or second for some 5 s. Measured: 9."""
NOTICED_SECONDS = 25.0
"""Above the judge's bound for a new generation after the log was cut off, slack included."""

TOLD_SECONDS = 1.0
"""Chosen: a refusal reaches user code within so long, its batch included, or not at all."""

Harm = Callable[[World, random.Random, Window], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Attributes:
        harm: does it.
        evicts: a live member may lose its session by it.
        fences: so many transactional members may end by it, because their producer is of no use any more.
        mixed: a member without the agent is in the group meanwhile.
        alone: no other fault begins with it.
    """

    harm: Harm
    evicts: bool = False
    fences: int = 0
    mixed: bool = False
    alone: bool = False


FAULTS: dict[str, Fault] = {}


def _fault(
    kind: str, *, evicts: bool = False, fences: int = 0, mixed: bool = False, alone: bool = False
) -> Callable[[Harm], Harm]:
    def registered(harm: Harm) -> Harm:
        FAULTS[kind] = Fault(harm, evicts=evicts, fences=fences, mixed=mixed, alone=alone)
        return harm

    return registered


def _over(window: Window) -> None:
    """Up to now the fault itself kept partitions from being consumed."""
    window.over_ns = max(window.over_ns, clock_ns())


def _chosen(world: World, rng: random.Random, count: int = 1) -> list[str]:
    members = world.members()
    return rng.sample(members, min(count, len(members)))


def _victim(world: World, rng: random.Random, window: Window) -> str:
    """Choose the one member that the fault meets."""
    (name,) = window.meets = _chosen(world, rng)
    window.detail = name
    return name


# -- processes ---------------------------------------------------------------------------------------------------


@_fault("kill -9 of a member")
async def kill_member(world: World, rng: random.Random, window: Window) -> None:
    window.meets = _chosen(world, rng, rng.choice((1, 1, 2)))
    window.detail = ", ".join(window.meets)
    for name in window.meets:
        await world.end(name, signal.SIGKILL)


@_fault("kill -9 of the leader")
async def kill_leader(world: World, rng: random.Random, window: Window) -> None:
    leader = await world.leader()
    window.detail = leader or "nobody leads"
    if leader is not None:
        window.meets = [leader]
        await world.end(leader, signal.SIGKILL)


@_fault("SIGSTOP past the session", evicts=True)
async def freeze_long(world: World, rng: random.Random, window: Window) -> None:
    await _freeze(world, rng, window, rng.uniform(1.3, 2.0) * SESSION_SECONDS)


@_fault("SIGSTOP within the session")
async def freeze_short(world: World, rng: random.Random, window: Window) -> None:
    await _freeze(world, rng, window, rng.uniform(0.1, 0.4) * SESSION_SECONDS)
    _over(window)


async def _freeze(world: World, rng: random.Random, window: Window, seconds: float) -> None:
    name = _victim(world, rng, window)
    window.detail = f"{name}, {seconds:.1f} s"
    process = world.group.members[name].process
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)  # the fault itself
        process.send_signal(signal.SIGCONT)


@_fault("rolling restart of members")
async def roll_members(world: World, rng: random.Random, window: Window) -> None:
    for name in world.members():
        await world.end(name)
        if world.tended:
            await world.until_stable(await world.start_member(), timeout_seconds=READY_SECONDS)


@_fault("deploy: new members, then the old ones go", alone=True)
async def deploy_surge(world: World, rng: random.Random, window: Window) -> None:
    with world.untended():
        old = world.members()
        fresh = [await world.start_member() for _ in range(world.limits.members)]
        await world.until_stable(*fresh, timeout_seconds=2 * READY_SECONDS)
        await asyncio.gather(*(world.end(name) for name in old))


@_fault("deploy: all go, then the new ones come", alone=True)
async def deploy_recreate(world: World, rng: random.Random, window: Window) -> None:
    with world.untended():
        await asyncio.gather(*(world.end(name) for name in world.members()))
        for _ in range(world.limits.members):
            await world.start_member()
        await world.until_started()
        _over(window)


# -- transactions ------------------------------------------------------------------------------------------------


@_fault("kill -9 of a transactional member in its transaction")
async def kill_transformer(world: World, rng: random.Random, window: Window) -> None:
    name, place = _transformer(world, rng)
    window.detail, window.meets = f"{name}, {place}", [name]
    await world.transformers.kill_in_transaction(name, place)
    await _transformed(world)


@_fault("SIGSTOP of a transactional member in its transaction", fences=1)
async def freeze_transformer(world: World, rng: random.Random, window: Window) -> None:
    """When it wakes its session is over, and its transaction is open still or was aborted."""
    name, place = _transformer(world, rng)
    seconds = rng.uniform(1.1, 2.0) * SESSION_SECONDS
    window.detail, window.meets = f"{name}, {place}, {seconds:.1f} s", [name]
    await world.transformers.freeze_in_transaction(name, place, seconds)
    await _transformed(world)


@_fault("kill -9 of the transactional producer in its transaction")
async def kill_feeder(world: World, rng: random.Random, window: Window) -> None:
    window.detail = f"{await world.feeder.kill_in_transaction()} records open"
    await _transformed(world)


async def _transformed(world: World) -> None:
    # A partition that stays stuck is told as output that comes late or never.
    assert await world.until_transformed(clock_ns()), "the transactional members do not go on"


def _transformer(world: World, rng: random.Random) -> tuple[str, str]:
    return rng.choice(sorted(world.transformers.processes)), rng.choice(PLACES)


# -- user code ---------------------------------------------------------------------------------------------------


@_fault("user code blocks its loop")
async def block(world: World, rng: random.Random, window: Window) -> None:
    name = _victim(world, rng, window)
    seconds = rng.uniform(1.1, 1.25) * SESSION_SECONDS
    window.detail = f"{name}, {seconds:.1f} s"
    if await world.order(name, "block", seconds):
        await asyncio.sleep(seconds)  # the fault itself
    _over(window)


@_fault("user code raises")
async def raises(world: World, rng: random.Random, window: Window) -> None:
    name = _victim(world, rng, window)
    with world.endings.expecting([name], 3):
        if await world.order(name, "raise"):
            await _gone(world, name)


@_fault("user code breaks its loop")
async def breaks(world: World, rng: random.Random, window: Window) -> None:
    name = _victim(world, rng, window)
    with world.endings.expecting([name], 0):
        if await world.order(name, "break"):
            await _gone(world, name)


@_fault("user code never returns", evicts=True)
async def hangs(world: World, rng: random.Random, window: Window) -> None:
    name = _victim(world, rng, window)
    if await world.order(name, "silent", 3_600.0):
        await asyncio.sleep(POLL_INTERVAL_SECONDS)  # the fault itself
        # Up to here it may be slow rather than stuck: its partitions wait for it.
        _over(window)
        await world.until_consumed(window.over_ns)
    await world.end(name, signal.SIGKILL)


async def _gone(world: World, name: str) -> None:
    await eventually(lambda: name not in world.group.members, f"{name} has ended")


# -- the network -------------------------------------------------------------------------------------------------


@_fault("connections cut", fences=FENCED_ONCE)
async def cut(world: World, rng: random.Random, window: Window) -> None:
    times = rng.randint(1, 6)
    window.detail = f"{times} times"
    for _ in range(times):
        world.cluster.proxies.cut(Hole(broker=rng.choice((None, 1, 2, 3))))
        await asyncio.sleep(rng.uniform(0.05, 1.0))


@_fault("connections slowed", evicts=True, fences=FENCED_ONCE)
async def slow(world: World, rng: random.Random, window: Window) -> None:
    delay, seconds = rng.uniform(0.01, 0.15), rng.uniform(4.0, 10.0)
    window.detail = f"{delay:.2f} s each way for {seconds:.1f} s"
    world.cluster.proxies.slow(delay)
    await asyncio.sleep(seconds)
    world.cluster.proxies.heal()
    # What each call takes is as long as the delay, however many records wait.
    _over(window)


@_fault("a broker's connections silent", evicts=True, fences=FENCED_ONCE)
async def broker_silent(world: World, rng: random.Random, window: Window) -> None:
    broker, seconds = rng.randint(1, BROKERS), rng.uniform(1.0, 1.3 * SESSION_SECONDS)
    window.detail = f"broker {broker} for {seconds:.1f} s"
    await _swallow(world, rng, Hole(broker=broker), seconds)
    _over(window)


@_fault("a member's connections silent past the session", evicts=True)
async def member_silent(world: World, rng: random.Random, window: Window) -> None:
    name = _victim(world, rng, window)
    seconds = rng.uniform(1.3, 2.0) * SESSION_SECONDS
    window.detail = f"{name} for {seconds:.1f} s"
    await _swallow(world, rng, Hole(client=name), seconds)


async def _swallow(world: World, rng: random.Random, hole: Hole, seconds: float) -> None:
    """Swallow, then either let through what waited, late as it is, or cut."""
    world.cluster.proxies.swallow(hole)
    await asyncio.sleep(seconds)  # the fault itself
    if rng.random() < 0.5:
        world.cluster.proxies.cut(hole)
    world.cluster.proxies.heal()


# -- brokers -----------------------------------------------------------------------------------------------------


@_fault("kill -9 of a broker", evicts=True, fences=FENCED_ONCE, alone=True)
async def kill_broker(world: World, rng: random.Random, window: Window) -> None:
    broker = rng.choice(world.cluster.kafka.brokers)
    away = rng.uniform(1.0, 1.5 * SESSION_SECONDS)
    window.detail = f"broker {broker.id}, away for {away:.1f} s"
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(away)
    await asyncio.to_thread(broker.start)


@_fault("SIGSTOP of a broker", evicts=True, fences=FENCED_ONCE, alone=True)
async def freeze_broker(world: World, rng: random.Random, window: Window) -> None:
    broker, seconds = rng.choice(world.cluster.kafka.brokers), rng.uniform(1.0, 1.5 * SESSION_SECONDS)
    window.detail = f"broker {broker.id}, {seconds:.1f} s"
    await asyncio.to_thread(broker.suspend)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(broker.resume)


@_fault("rolling restart of brokers", evicts=True, fences=FENCED_ONCE, alone=True)
async def roll_brokers(world: World, rng: random.Random, window: Window) -> None:
    for broker in world.cluster.kafka.brokers:
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)
        await world.until_consumed(clock_ns())


@_fault("leaders and coordinator moved", fences=FENCED_ONCE, alone=True)
async def move_leaders(world: World, rng: random.Random, window: Window) -> None:
    replicas = rng.sample(range(1, BROKERS + 1), BROKERS)
    window.detail = f"to broker {replicas[0]}"
    for topic in (world.topics[0], world.control, OFFSETS_TOPIC):
        await lead(world.cluster.kafka, topic, await leaders(world.cluster.kafka, topic), replicas)


# -- the control topic, rights, the webhook ----------------------------------------------------------------------


@_fault("control topic deleted", alone=True)
async def control_deleted(world: World, rng: random.Random, window: Window) -> None:
    """Deleted under its readers: a member makes it anew, one that runs or the next that starts."""
    away = rng.choice((0.0, rng.uniform(1.0, 6.0)))
    window.detail = f"made anew after {away:.1f} s"
    await asyncio.to_thread(world.cluster.delete_topic, world.control)
    await asyncio.sleep(away)
    (name,) = _chosen(world, rng)
    await world.end(name)
    if world.tended:
        await world.until_stable(await world.start_member(), timeout_seconds=READY_SECONDS)


@_fault("control topic truncated")
async def control_truncated(world: World, rng: random.Random, window: Window) -> None:
    """Everything up to the end is deleted, also what nobody has read yet."""
    wanted = [TopicPartition(world.control, partition, -1) for partition in (0, 1)]

    def truncate() -> None:
        for done in world.cluster.admin.delete_records(wanted).values():
            done.result(ADMIN_SECONDS)

    for _ in range(rng.randint(1, 4)):
        with contextlib.suppress(KafkaException):
            await asyncio.to_thread(truncate)


@_fault("control topic compacted", alone=True)
async def control_compacted(world: World, rng: random.Random, window: Window) -> None:
    """Its policy is compaction for some seconds: the broker refuses records without a key, and a member leaves."""
    compact = {"cleanup__policy": "compact", "min__cleanable__dirty__ratio": "0.0", "segment__ms": "100"}
    await asyncio.to_thread(lambda: world.cluster.configure(world.control, **compact))
    await asyncio.sleep(rng.uniform(1.0, 3.0))
    await world.end(*_chosen(world, rng))
    await asyncio.sleep(rng.uniform(1.0, 5.0))
    delete = {"cleanup__policy": "delete", "segment__ms": "604800000"}
    await asyncio.to_thread(lambda: world.cluster.configure(world.control, **delete))


@_fault("control topic's end cut off by an unclean election", evicts=True, fences=FENCED_ONCE, alone=True)
async def control_cut(world: World, rng: random.Random, window: Window) -> None:
    """What members have read is gone, and others write in its place.

    In half of the cases that is how a member left, and another member never reads of it.
    """
    brokers = rng.sample(world.cluster.kafka.brokers, BROKERS)
    leaves, seconds = rng.random() < 0.5, rng.uniform(0.3, 2.0)
    election = UncleanElection(world.cluster, world.control, world.group.group, *brokers)
    # Whoever starts without a log makes the group a mixed one, which is not what is tested here.
    with world.untended():
        async with election.lagging():
            await world.until_consumed(clock_ns(), READY_SECONDS)
            if leaves:
                leaver, blind = _chosen(world, rng, 2)
                world.cluster.proxies.swallow(Hole(broker=brokers[0].id, client=blind))
                await world.end(leaver)
            await asyncio.sleep(seconds)
            before, begun_ns = await world.generation(), clock_ns()
            try:
                gone = await election.cut()
            finally:
                world.cluster.proxies.heal()
            window.cut_ns = begun_ns
            # Until then partitions of the brokers that died or slept had no leader, or the group no coordinator.
            _over(window)
        # What begins later, by the next fault say, is not to hide from the judge that nobody noticed.
        await world.until_generation_after(before, NOTICED_SECONDS)
    what = f"{leaver} left, {blind} blind" if leaves else "nobody left"
    window.detail = f"{gone} records of broker {brokers[0].id} at least, {what}"


def _rights(what: str, *, crashes: bool = False) -> Harm:
    """Take away rights and give them back; where that ends members, none is started before."""

    async def taken(world: World, rng: random.Random, window: Window) -> None:
        seconds = rng.uniform(1.0, 5.0)
        window.detail = f"for {seconds:.1f} s"
        members = world.members() if crashes else []
        with world.endings.expecting(members, 4, crash=True):
            with world.untended() if crashes else contextlib.nullcontext():
                await asyncio.to_thread(world.cluster.revoke, world.rights[what])
                await asyncio.sleep(seconds)
                await asyncio.to_thread(world.cluster.grant, world.rights[what])
                # One that was told in the last moment runs for a while yet.
                told_ns = clock_ns() + round(TOLD_SECONDS * 1e9)
                await world.until_ended_or_working(members, told_ns, READY_SECONDS)
            if crashes:
                await world.until_started()
                _over(window)

    return taken


# User code is told once, and ends here; what it had done cannot be committed any more.
_fault("ACL of the topics taken and given back", fences=FENCED_ALL, alone=True)(_rights("data", crashes=True))
_fault("ACL of the control topic taken and given back", alone=True)(_rights("control"))
_fault("ACL of the group taken and given back", evicts=True, alone=True)(_rights("group", crashes=True))


@_fault("webhook lies")
async def webhook_lies(world: World, rng: random.Random, window: Window) -> None:
    """A member ends and nobody comes for it; the webhook fails, hangs, talks nonsense, or agrees and does nothing."""
    lies = (hang_up, answer(500, "no"), answer(404), garbage, hang, None)
    chosen = [rng.choice(lies) for _ in range(20)]
    world.receiver.behaviours.extend(lie for lie in chosen if lie is not None)
    with world.untended():
        for name in _chosen(world, rng, rng.randint(1, 2)):
            await world.end(name)
        await asyncio.sleep(rng.uniform(3.0, 8.0))
    world.receiver.behaviours.clear()


# -- members without the agent -----------------------------------------------------------------------------------


@_fault("a plain aiokafka member comes and goes", evicts=True, mixed=True, alone=True)
async def plain_member(world: World, rng: random.Random, window: Window) -> None:
    name = f"plain{len(world.windows)}"
    await world.start_foreign(name, "aiokafka")
    await world.until_working(name)
    await asyncio.sleep(rng.uniform(0.0, 4.0))
    await world.end(name)
    await world.until_stable()


@_fault("a KIP-848 member comes and goes", evicts=True, mixed=True, alone=True)
async def broker_assigned_member(world: World, rng: random.Random, window: Window) -> None:
    """It is refused as long as the group is ours, so a plain member opens the door in most runs."""
    plain, name = f"door{len(world.windows)}", f"kip{len(world.windows)}"
    window.detail = "refused"
    if rng.random() < 0.7:
        window.detail = "after a plain member"
        await world.start_foreign(plain, "aiokafka")
        await world.until_working(plain)
    await world.start_foreign(name, KIP_848)
    await world.until_working(name, SESSION_SECONDS)
    await asyncio.sleep(rng.uniform(0.0, 3.0))
    for each in rng.sample((plain, name), 2):
        await world.end(each)
    await world.until_stable()


ALONE = frozenset(kind for kind, fault in FAULTS.items() if fault.alone)

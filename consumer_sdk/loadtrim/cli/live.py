"""The live view of ``loadtrim up`` and of the demo, drawn with rich (extra ``cli``).

:func:`render` is pure: what it is given is what it draws. :class:`LiveView` redraws it on a terminal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from loadtrim.observer.group import ObservedGroup, ObservedMember
from loadtrim.orchestrator.instances import InstanceInfo, OrchestratorEvent
from loadtrim.orchestrator.supervisor import SETTLE_SECONDS, Phase
from loadtrim_agent.observability.text import (
    counted,
    decision_line,
    duration,
    late_line,
    manual_override_line,
    number,
    percent,
    printable,
)

from .text import ago, busy_words, in_time_words, latency_words, member_label, owns, partition_rows

__all__ = ["LiveView", "Scene", "bar", "render", "sparkline"]

REFRESH_SECONDS = 0.25
EVENTS_SHOWN = 6
OTHER_LINES = 30
"""Lines that everything but the tables of members and partitions takes: the partitions are drawn where they fit below,
else the members' column says who owns what."""
CURVE_WIDTH_MAX = 60
CURVE_LINES = 32
"""On a lower terminal the curves are left out."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_STATE_STYLES = {
    "running": "green",
    "joining": "cyan",
    "waiting": "cyan",
    "leaving": "yellow",
    "victim": "yellow",
    "stopping": "yellow",
    "killed": "red",
    "silent": "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that one picture shows."""

    now: float
    started_at: float
    title: str = "loadtrim up"
    state: ObservedGroup | None = None
    trouble: str = ""
    """The reason why there is no state, or why it may be old."""
    instances: Sequence[InstanceInfo] = ()
    wanted: int = 0
    replica_seconds: float = 0.0
    events: Sequence[OrchestratorEvent] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further lines of the first panel, by name: a demo's own."""
    footer: str = ""


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """Values as blocks; the largest, or ``top``, is a full one.

    Args:
        values: oldest first, >= 0.
        top: value of a full block; None: the largest of the values.
    """
    full = max(values, default=0.0) if top is None else top
    if full <= 0:
        return _BLOCKS[0] * len(values)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(last, max(0, round(value / full * last)))] for value in values)


def bar(share: float, width: int = 20) -> Text:
    """A bar for a share of 0 .. 1; what is above 1 is a full bar in red."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    style = "red" if share > 1.0 else "yellow" if share > 0.9 else "green"
    return Text("█" * filled, style) + Text("░" * (width - filled), "dim")


def render(scene: Scene, height: int = 50) -> RenderableType:
    """Draw one picture for a terminal of so many lines."""
    parts: list[RenderableType] = [_group_panel(scene, height), _members_panel(scene)]
    state = scene.state
    if state is not None:
        parts.append(_decision_panel(scene, state))
        rows = len(scene.instances or state.members) + len(state.partitions)
        if state.partitions and rows + OTHER_LINES <= height:
            parts.append(_partitions_panel(state))
    if scene.events:
        parts.append(_events_panel(scene))
    if scene.footer:
        parts.append(Text(scene.footer, "dim"))
    return Group(*parts)


def _group_panel(scene: Scene, height: int) -> Panel:
    state = scene.state
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(ratio=1)
    for name, words in scene.facts.items():
        grid.add_row(name, words)
    if scene.trouble:
        grid.add_row("group", Text(scene.trouble, "yellow"))
    if state is not None:
        _add_load(grid, state)
        if height >= CURVE_LINES:
            _add_curves(grid, state)
        _add_time(grid, state)
        oldest = f", the oldest {duration(state.lag_seconds)} old" if state.lag_records else ""
        grid.add_row("behind", f"{counted(state.lag_records, 'record')}{oldest}")
        grid.add_row("moves", f"{counted(state.moves, 'handoff')} in the last {duration(state.window_seconds)}")
        if state.mixed:
            grid.add_row(
                "mixed", Text("members that are plain consumers are in it: nothing moves or scales", "bold yellow")
            )
        if state.manual_override is not None:
            grid.add_row("brake", Text(manual_override_line(state.manual_override), "bold yellow"))
    title = Text(scene.title)
    if state is not None:
        generation = "" if state.generation is None else f", generation {state.generation}"
        title += Text(f": {printable(state.group)}{generation}")
    running = duration(max(0.0, round(scene.now - scene.started_at)))
    return Panel(grid, title=title, title_align="left", subtitle=running, subtitle_align="right", box=box.ROUNDED)


def _add_load(grid: Table, state: ObservedGroup) -> None:
    if state.work is None:
        grid.add_row("load", f"{number(state.rate)} records/s")
        return
    share = state.work / state.capacity if state.capacity else 0.0
    words = f" {number(state.work)} of {number(state.capacity)} busy seconds per second ({percent(share)})"
    grid.add_row("load", bar(share, 30) + Text(words))
    expected = "" if state.forecast is None else f", {number(state.forecast)} expected"
    startup = "" if state.startup_seconds is None else f" while a replica starts ({duration(state.startup_seconds)})"
    grid.add_row("", f"{number(state.rate)} records/s{expected}{startup if expected else ''}")


def _add_curves(grid: Table, state: ObservedGroup) -> None:
    points = state.history[-CURVE_WIDTH_MAX:]
    top = max((max(point.work, point.capacity) for point in points), default=0.0)
    if top > 0:
        grid.add_row("", Text(sparkline([point.work for point in points], top), "cyan") + Text(" load", "dim"))
        grid.add_row("", Text(sparkline([point.capacity for point in points], top), "blue") + Text(" capacity", "dim"))


def _add_time(grid: Table, state: ObservedGroup) -> None:
    share, wanted = state.in_time_share, state.objective_share
    missed = share is not None and wanted is not None and share < wanted
    style = "bold yellow" if state.unknown_share else "bold red" if missed else "bold green"
    grid.add_row("in time", Text(in_time_words(state), style))
    if latency := latency_words(state):
        grid.add_row("latency", _latency_bar(state) + Text(latency))
    if late := late_line(state.late):
        grid.add_row("late", Text(late, "yellow"))


def _latency_bar(state: ObservedGroup) -> Text:
    """99th percentile against the objective: a full bar is the objective."""
    if not state.objective_seconds or state.latency_p99 is None or state.unknown_share:
        return Text()
    return bar(state.latency_p99 / state.objective_seconds, 30) + Text(" ")


def _members_panel(scene: Scene) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    for header, right in (("instance", False), ("state", False), ("busy", False), ("behind", True), ("oldest", True)):
        table.add_column(header, justify="right" if right else "left", no_wrap=True)
    table.add_column("owns", ratio=1)
    state = scene.state
    called = state.called if state else {}
    members: dict[str, list[ObservedMember]] = {}
    for each in state.members if state else ():
        members.setdefault(each.instance or each.member, []).append(each)
    for instance in scene.instances:
        for row in _instance_rows(instance, members.pop(instance.name, []), called, scene.now):
            table.add_row(*row)
    for of_instance in members.values():
        for member in of_instance:
            table.add_row(*_member_row(member, called))
    running = sum(1 for each in scene.instances if each.phase is not Phase.WAITING)
    wanted = f", {scene.wanted} wanted" if scene.wanted != running else ""
    cost = f", {number(scene.replica_seconds / 60)} replica-minutes so far"
    title = f"{counted(running, 'replica')}{wanted}{cost}" if scene.instances else "members"
    return Panel(table, title=title, title_align="left", box=box.ROUNDED)


def _instance_rows(
    instance: InstanceInfo, members: Sequence[ObservedMember], called: Mapping[str, str], now: float
) -> list[tuple[RenderableType, ...]]:
    """A row for each member of a process that runs, else one for the process."""
    if members and instance.phase is Phase.RUNNING:
        return [_member_row(member, called) for member in members]
    if instance.phase is Phase.RUNNING:
        started = now if instance.started_at is None else instance.started_at
        words = Text(f"starting ({duration(max(0.0, now - started))})", "cyan")
    elif instance.phase is Phase.WAITING and instance.due_at is not None:
        words = Text(f"starts in {duration(max(0.0, instance.due_at - now))}", "cyan")
    else:
        words = Text(instance.phase.value, _STATE_STYLES.get(instance.phase.value, ""))
    owned = owns(partition for member in members for partition in member.partitions)
    return [(Text(instance.name), words, "", "", "", Text(owned) if owned else Text(_crashes(instance, now), "red"))]


def _crashes(instance: InstanceInfo, now: float) -> str:
    """Return ``crashed 3 times in a row``; empty where it has run well since."""
    if not instance.failures or (instance.started_at is not None and now - instance.started_at >= SETTLE_SECONDS):
        return ""
    return "crashed once" if instance.failures == 1 else f"crashed {instance.failures} times in a row"


def _member_row(member: ObservedMember, called: Mapping[str, str]) -> tuple[RenderableType, ...]:
    state = "to go" if member.state == "victim" else member.state
    busy: RenderableType = ""
    if member.utilization is not None:
        busy = bar(member.utilization, 10) + Text(f" {busy_words(member)}")
    return (
        Text(member_label(member, called), "bold" if member.leader else ""),
        Text(printable(state), _STATE_STYLES.get(member.state, "")),
        busy,
        str(member.lag_records),
        duration(member.lag_seconds) if member.lag_records else "",
        Text(owns(member.partitions)),
    )


def _partitions_panel(state: ObservedGroup) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    headers = ("partition", "owner", "state", "records/s", "cost", "behind", "oldest", "handoffs")
    for index, header in enumerate(headers):
        table.add_column(header, justify="right" if index >= 3 else "left", no_wrap=True)
    for row in partition_rows(state.partitions, state.called):
        table.add_row(*map(Text, row))
    return Panel(table, title="who owns what", title_align="left", box=box.ROUNDED)


def _decision_panel(scene: Scene, state: ObservedGroup) -> Panel:
    if state.decision is None:
        return Panel(Text("none yet", "dim"), title="last decision", title_align="left", box=box.ROUNDED)
    # As text, not as a string: in one, what stands in brackets would be markup.
    sentence = Text(decision_line(state.decision, state.names))
    return Panel(
        sentence, title=f"last decision, {ago(scene.now - state.decision.at)}", title_align="left", box=box.ROUNDED
    )


def _events_panel(scene: Scene) -> Panel:
    lines = [
        f"{time.strftime('%H:%M:%S', time.localtime(event.at))}  {event.words}"
        for event in scene.events[-EVENTS_SHOWN:]
    ]
    return Panel(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), title="events", title_align="left")


class LiveView:
    """Draws scenes on a terminal, a few times a second, until closed.

    Args:
        scene: makes the scene to draw.
        console: where to draw; None: standard output.
    """

    def __init__(self, scene: Callable[[], Scene], console: Console | None = None) -> None:
        self._scene = scene
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=True, vertical_overflow="crop")

    async def run(self) -> None:
        """Draw until cancelled; the terminal is as before then."""
        with self._live:
            while True:
                self._draw()
                await asyncio.sleep(REFRESH_SECONDS)

    def _draw(self) -> None:
        """Draw once. A scene that cannot be drawn must not end the view: ``up`` would end all instances with it."""
        try:
            self._live.update(render(self._scene(), self._console.height), refresh=True)
        except Exception as error:
            words = f"The group cannot be drawn now ({type(error).__name__}: {printable(str(error))})."
            self._live.update(Text(words, "red"), refresh=True)

"""One page about groups: what was expected and came, what it took, what was late and why. Pure: figures in, HTML out.

The page fetches nothing, so that it can be mailed, kept beside a release or served by anything.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import jinja2

from loadtrim_spark.reporting.charts import Line, bars, lines
from loadtrim_spark.reporting.story import Interval, Period, Story

__all__ = ["page"]

HOUR_SECONDS = 3600
HOURS_SHOWN = 5
TEMPLATE = "page.html.j2"
CAUSES = {
    "startup": "replica on its way",
    "unasked": "fewer replicas than were wanted",
    "forecast": "more came than was forecast",
    "placement": "partitions lay badly",
    "queued": "waited for other partitions",
    "serial": "partition too large for one member",
    "blocked": "paused, or user code did not advance",
    "already_late": "late before it could be seen",
}
"""What the causes of late records mean; others are shown as they are called."""


def page(stories: Sequence[Story], period: Period, made_at: str) -> str:
    """Return the page.

    Args:
        stories: one per group, in the order in which they are to stand.
        period: that they tell of.
        made_at: when, in words.
    """
    begin, end = (f"{_moment(at, period.zone):%A %d %B %Y %H:%M}" for at in (period.begin, period.end))
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    groups = [
        {
            "name": story.group,
            "cards": _cards(story),
            "plots": list(_plots(story, period)),
            "tables": [
                ("Worst", [_row(hour, story, period) for hour in worst_hours(story)]),
                ("Best", [_row(hour, story, period) for hour in best_hours(story)]),
            ],
            "saved": _saved(story),
        }
        for story in stories
    ]
    page: str = environment.get_template(TEMPLATE).render(
        groups=groups, begin=begin, end=end, zone=period.zone, made_at=made_at
    )
    return page


def hours(story: Story) -> list[Interval]:
    """The intervals, added up by the hour; as they are where they are longer."""
    found: dict[int, Interval] = {}
    for each in story.intervals:
        start = each.start // HOUR_SECONDS * HOUR_SECONDS
        found[start] = _sum(found.get(start, Interval(start=start)), each)
    return [found[start] for start in sorted(found)]


def worst_hours(story: Story) -> list[Interval]:
    """Those with the smallest share in time, the worst first; none in which nothing was late."""
    late = [hour for hour in hours(story) if hour.late]
    return sorted(late, key=lambda hour: (hour.share_in_time or 0.0, -hour.late, hour.start))[:HOURS_SHOWN]


def best_hours(story: Story) -> list[Interval]:
    """Those with the largest share in time, none of the worst; of equal ones those in which replicas did most."""
    worst = {hour.start for hour in worst_hours(story)}
    done = [hour for hour in hours(story) if hour.share_in_time is not None and hour.replica_seconds]
    done = [hour for hour in done if hour.start not in worst]
    return sorted(done, key=lambda hour: (-(hour.share_in_time or 0.0), -_use(hour), hour.start))[:HOURS_SHOWN]


def _cards(story: Story) -> list[tuple[str, str]]:
    whole = Interval(start=0)
    for each in story.intervals:
        whole = _sum(whole, each)
    share = whole.share_in_time
    objective = ""
    if story.objective_seconds is not None and story.objective_share is not None:
        objective = f"within {story.objective_seconds:g} s; {story.objective_share * 100:g} % are asked for"
    return [
        (f"{whole.arrived:,}", "records arrived"),
        ("unknown" if share is None else f"{share:.3%}", objective or "done in time"),
        (f"{whole.late:,}", "records were late"),
        (f"{whole.replica_seconds / HOUR_SECONDS:,.1f}" if whole.decided_seconds else "unknown", "replica-hours"),
        (f"{_use(whole):.0%}" if whole.decided_seconds else "unknown", "of that time spent on records"),
        (f"{whole.moves:,}", "partitions changed hands"),
    ]


def _plots(story: Story, period: Period) -> Iterator[tuple[str, str, str]]:
    """(heading, what is seen, plot)."""
    starts, every, zone = period.starts, period.interval_seconds, period.zone
    by_start = {each.start: each for each in story.intervals}
    known = [by_start.get(start) for start in starts]
    width = _width(every)
    seen = [None if each is None else each.arrived / every for each in known]
    bounds = [story.expected.get(start) for start in starts]
    curves = [
        Line(name="p50 to p99 of what was expected", values=[None if q is None else q[2] for q in bounds], colour=0,
             below=[None if q is None else q[0] for q in bounds]),
        Line(name="p90", values=[None if q is None else q[1] for q in bounds], colour=0, dashed=True),
        Line(name="seen", values=seen, colour=1),
    ]  # fmt: skip
    what = (
        "Expected: what the baselines of each midnight said of the day after it; "
        "a minute lies below p90 nine times of ten."
    )
    if not story.expected:
        what, curves = "Nothing was expected: the days before this time do not reach back far enough.", curves[2:]
    plot = lines(starts, curves, zone=zone, unit="records/s", title="Arrivals, expected and seen")
    yield "Expected and seen", f"Arrivals, {width}. {what}", plot
    there = Line(name="there", values=[None if each is None else each.replicas for each in known], step=True)
    asked = [None if each is None else each.wanted for each in known]
    wanted = Line(name="wanted", values=asked, colour=1, step=True, dashed=True)
    plot = lines(starts, [there, wanted], zone=zone, unit="replicas", title="Replicas wanted and there")
    yield "Replicas", f"Wanted by the leader and there, {width}, in the mean.", plot
    yield _late(story, period)
    moved = [0 if each is None else each.moves for each in known]
    plot = bars(starts, {"moves": moved}, zone=zone, unit="partitions", title="Moves")
    yield "Moves", f"Partitions that changed hands, {width}.", plot


def _late(story: Story, period: Period) -> tuple[str, str, str]:
    totals = _added(story.causes.values())
    if not totals:
        return "Late records by cause", "None.", ""
    stacks: Mapping[str, Sequence[float]] = {
        CAUSES.get(cause, cause): [story.causes.get(start, {}).get(cause, 0) for start in period.starts]
        for cause in sorted(totals, key=lambda cause: (-totals[cause], cause))
    }
    plot = bars(period.starts, stacks, zone=period.zone, unit="records", title="Late records by cause")
    return "Late records by cause", f"By the time at which they were done, {_width(period.interval_seconds)}.", plot


def _row(hour: Interval, story: Story, period: Period) -> tuple[str, ...]:
    """Return the cells of an hour: when, share in time, late, records/s, replicas, use, main cause."""
    share = hour.share_in_time
    return (
        f"{_moment(hour.start, period.zone):%a %d %b %H:%M}",
        "" if share is None else f"{share:.3%}",
        f"{hour.late:,}",
        f"{hour.arrived / HOUR_SECONDS:,.1f}",
        "" if hour.replicas is None else f"{hour.replicas:.2f}",
        f"{_use(hour):.0%}",
        _main_cause(story, hour),
    )


def _main_cause(story: Story, hour: Interval) -> str:
    """Of most of an hour's late records."""
    end = hour.start + HOUR_SECONDS
    late = _added(causes for start, causes in story.causes.items() if hour.start <= start < end)
    if not late:
        return ""
    most = min(late, key=lambda cause: (-late[cause], cause))
    return CAUSES.get(most, most)


def _saved(story: Story) -> tuple[str, str]:
    """Return heading and text: what the plan of shadow mode would have changed, else what scaling saved."""
    shadow = story.modes.get("shadow")
    if shadow is not None:
        saved = shadow.replica_seconds - shadow.wanted_seconds
        text = (
            f"In {_hours(shadow.seconds)} of shadow mode the group used {_hours(shadow.replica_seconds, 'replica-')}; "
            f"what was planned would have used {_hours(shadow.wanted_seconds, 'replica-')}"
        )
        text += f", {abs(saved) / shadow.replica_seconds:.0%} {'less' if saved >= 0 else 'more'}" if saved else ""
        more = shadow.more_seconds / shadow.seconds if shadow.seconds else 0.0
        text += f". For {more:.1%} of the time it would have had more replicas than there were"
        late = sum(each.late for each in story.intervals)
        text += f"; {late:,} records were late in the whole time." if late else ", and no record was late as it was."
        return "What shadow mode would have saved", text
    active = story.modes.get("active")
    if active is None or not active.seconds:
        return "What scaling saved", "Unknown: there are no decisions of this time."
    fixed = active.largest * active.seconds
    saved = 1 - active.replica_seconds / fixed if fixed else 0.0
    return "What scaling saved", (
        "The group was not in shadow mode in this time. Beside a group that always "
        f"has the {active.largest} replica{'' if active.largest == 1 else 's'} it had at most, it used "
        f"{_hours(active.replica_seconds, 'replica-')} instead of {_hours(fixed, 'replica-')}: {saved:.0%} less."
    )


def _sum(one: Interval, other: Interval) -> Interval:
    """Both; the start is the first one's."""
    added = {
        name: getattr(one, name) + getattr(other, name)
        for name in Interval.__dataclass_fields__
        if name not in ("start", "wanted_max")
    }
    return Interval(start=one.start, wanted_max=max(one.wanted_max, other.wanted_max), **added)


def _added(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return total


def _use(interval: Interval) -> float:
    """Busy seconds per replica-second."""
    return interval.busy_seconds / interval.replica_seconds if interval.replica_seconds else 0.0


def _hours(seconds: float, what: str = "") -> str:
    return f"{seconds / HOUR_SECONDS:,.1f} {what}hours"


def _width(seconds: int) -> str:
    named = {60: "each minute", HOUR_SECONDS: "each hour", 86_400: "each day"}
    return named.get(
        seconds, f"each {seconds // 60} minutes" if seconds < HOUR_SECONDS else f"each {seconds // 3600} hours"
    )


def _moment(seconds: float, zone: str) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(zone))

"""One page about groups: what was expected and came, what it took, what was late and why. Pure: figures in, HTML out.

The page fetches nothing, so that it can be mailed, kept beside a release or served by anything.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from loadtrim_spark.reporting.charts import Line, bars, lines
from loadtrim_spark.reporting.story import Interval, Period, Story

__all__ = ["page"]

HOUR_SECONDS = 3600
HOURS_SHOWN = 5
CAUSES = {
    "startup": "replica on its way",
    "forecast": "more came than was forecast",
    "placement": "partitions lay badly",
    "queued": "waited for other partitions",
    "serial": "partition too large for one member",
    "blocked": "paused, or user code did not advance",
    "already_late": "late before it could be seen",
}
"""What the causes of late records mean; others are shown as they are called."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #57606a; --rule: #d0d7de; --card: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9198a1; --rule: #30363d; --card: #161b22 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1000px;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.3rem; margin-top: 3rem; border-bottom: 1px solid var(--rule) }
h3 { font-size: 1rem; margin: 1.8rem 0 .3rem } p { margin: .3rem 0 } .faint { color: var(--faint) }
svg { width: 100%; height: auto; display: block } svg text { font-size: 11px; fill: var(--faint) }
svg .grid { stroke: var(--rule); stroke-width: .6 }
.legend { font-size: .85rem; color: var(--faint) } .legend span { margin-right: 1.2em; white-space: nowrap }
.legend i { display: inline-block; width: 1.6em; margin-right: .4em; vertical-align: middle;
  border-top: 3px solid var(--colour) }
.legend i.dashed { border-top-style: dashed } .legend i.filled { border-top-width: 10px; opacity: .7 }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 }
.cards div { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: .5rem .9rem }
.cards b { display: block; font-size: 1.25rem } .cards span { font-size: .85rem; color: var(--faint) }
.tables { display: flex; flex-wrap: wrap; gap: 2rem } table { border-collapse: collapse; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { text-align: right; padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--rule) }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left } th { font-weight: 500 }
"""


def page(stories: Sequence[Story], period: Period, made_at: str) -> str:
    """The page.

    Args:
        stories: one per group, in the order in which they are to stand.
        period: that they tell of.
        made_at: when, in words.
    """
    begin, end = (f"{_moment(at, period.zone):%A %d %B %Y %H:%M}" for at in (period.begin, period.end))
    head = (
        f"<h1>What the groups did</h1><p>{begin} to {end}, {escape(period.zone)}.</p>"
        f'<p class="faint">{len(stories)} {_plural(len(stories), "group")}, the busiest first. Made {escape(made_at)} '
        "by loadtrim from what members and leaders told; times are local, shares are of records that were done.</p>"
    )
    links = ""
    if len(stories) > 1:
        entries = (f'<li><a href="#g{n}">{escape(story.group)}</a></li>' for n, story in enumerate(stories))
        links = f"<ul>{''.join(entries)}</ul>"
    body = "".join(_group(number, story, period) for number, story in enumerate(stories))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>loadtrim: what the groups did</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{head}{links}{body}</body></html>\n"
    )


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


def _group(number: int, story: Story, period: Period) -> str:
    parts = [f'<h2 id="g{number}">{escape(story.group)}</h2>', _cards(story)]
    for heading, said, plot in _plots(story, period):
        parts.append(f'<h3>{heading}</h3><p class="faint">{said}</p>{plot}')
    parts.append('<h3>Best and worst hours</h3><div class="tables">')
    parts.append(_table("Worst", worst_hours(story), story, period) or "<p>No hour had a late record.</p>")
    parts.append(_table("Best", best_hours(story), story, period))
    parts.append("</div>" + _saved(story))
    return "".join(parts)


def _cards(story: Story) -> str:
    whole = Interval(start=0)
    for each in story.intervals:
        whole = _sum(whole, each)
    share = whole.share_in_time
    objective = ""
    if story.objective_seconds is not None and story.objective_share is not None:
        objective = f"within {story.objective_seconds:g} s; {story.objective_share * 100:g} % are asked for"
    entries = [
        (f"{whole.arrived:,}", "records arrived"),
        ("unknown" if share is None else f"{share:.3%}", objective or "done in time"),
        (f"{whole.late:,}", "records were late"),
        (f"{whole.replica_seconds / HOUR_SECONDS:,.1f}" if whole.decided_seconds else "unknown", "replica-hours"),
        (f"{_use(whole):.0%}" if whole.decided_seconds else "unknown", "of that time spent on records"),
        (f"{whole.moves:,}", "partitions changed hands"),
    ]
    return '<div class="cards">' + "".join(f"<div><b>{figure}</b><span>{escape(text)}</span></div>"
                                           for figure, text in entries) + "</div>"  # fmt: skip


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


def _table(caption: str, chosen: Sequence[Interval], story: Story, period: Period) -> str:
    if not chosen:
        return ""
    rows = []
    for hour in chosen:
        share = hour.share_in_time
        cells = (
            f"{_moment(hour.start, period.zone):%a %d %b %H:%M}",
            "" if share is None else f"{share:.3%}",
            f"{hour.late:,}",
            f"{hour.arrived / HOUR_SECONDS:,.1f}",
            "" if hour.replicas is None else f"{hour.replicas:.2f}",
            f"{_use(hour):.0%}",
            escape(_main_cause(story, hour)),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ("hour", "in time", "late", "records/s", "replicas", "use", "mostly" if any(h.late for h in chosen) else "")
    return (
        f"<table><caption>{caption}</caption><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
        f"{''.join(rows)}</table>"
    )


def _main_cause(story: Story, hour: Interval) -> str:
    """Of most of an hour's late records."""
    end = hour.start + HOUR_SECONDS
    late = _added(causes for start, causes in story.causes.items() if hour.start <= start < end)
    if not late:
        return ""
    most = min(late, key=lambda cause: (-late[cause], cause))
    return CAUSES.get(most, most)


def _saved(story: Story) -> str:
    """What acting on the plan of shadow mode would have changed; else what scaling saved against a fixed group."""
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
        return f"<h3>What shadow mode would have saved</h3><p>{text}</p>"
    active = story.modes.get("active")
    if active is None or not active.seconds:
        return "<h3>What scaling saved</h3><p>Unknown: there are no decisions of this time.</p>"
    fixed = active.largest * active.seconds
    saved = 1 - active.replica_seconds / fixed if fixed else 0.0
    return (
        "<h3>What scaling saved</h3><p>The group was not in shadow mode in this time. Beside a group that always "
        f"has the {active.largest} {_plural(active.largest, 'replica')} it had at most, it used "
        f"{_hours(active.replica_seconds, 'replica-')} instead of {_hours(fixed, 'replica-')}: {saved:.0%} less.</p>"
    )


def _sum(one: Interval, other: Interval) -> Interval:
    """Both; the start is the first one's."""
    added = {
        name: getattr(one, name) + getattr(other, name)
        for name in Interval.__dataclass_fields__
        if name not in ("start", "wanted_max")
    }
    return Interval(start=one.start, wanted_max=max(one.wanted_max, other.wanted_max), **added)


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for cause, records in each.items():
            total[cause] = total.get(cause, 0) + records
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


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def _moment(seconds: float, zone: str) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(zone))

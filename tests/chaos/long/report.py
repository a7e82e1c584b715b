"""What a run came to, for people and as JSON."""

from __future__ import annotations

from typing import Any

from .judge import Judgement

__all__ = ["as_json", "table"]

SHOWN_MAX = 10


def table(found: Judgement, replay: str) -> str:
    """Return the outcome for people."""
    bounds = f"standstills within {found.bound_seconds:g} s, in mixed groups {found.bound_mixed_seconds:g} s"
    lines = [f"{'fault':<48}{'times':>6}{'worst s':>9}{'repeats':>9}"]
    for kind, row in sorted(found.rows.items()):
        lines.append(f"{kind:<48}{row.count:>6}{row.worst_seconds:>9.2f}{row.repeats:>9,}")
    counts = {name: len(texts) for name, texts in found.violations.items()}
    lines += [
        "",
        f"records: {found.sent:,} sent, {found.acknowledged:,} acknowledged, {found.aborted:,} in aborted transactions",
        f"         {found.delivered:,} delivered, {sum(row.repeats for row in found.rows.values()):,} repeats by fault",
        f"         {counts.get('lost', 0)} lost, {counts.get('double owner', 0)} with two owners",
        f"output:  {found.outputs:,} records in {found.transactions:,} transactions",
        f"         {found.output_seconds:.2f} s after its input at the latest",
        "excused: " + (", ".join(f"{n:,} {what}" for what, n in sorted(found.excused.items()) if n) or "nothing"),
    ]
    if found.failed:
        lines += ["", f"not played as they should: {len(found.failed)}", *(f"  {text}" for text in found.failed)]
    for name, texts in sorted(found.violations.items()):
        if texts:
            lines += ["", f"{name}: {len(texts)}", *(f"  {text}" for text in texts[:SHOWN_MAX])]
    lines += ["", f"verdict: {'ok' if found.ok else 'VIOLATED'} ({bounds})", f"replay: {replay}"]
    return "\n".join(lines)


def as_json(found: Judgement, *, seed: int, minutes: float) -> dict[str, Any]:
    """Return the outcome as JSON takes it."""
    return {
        "seed": seed,
        "minutes": minutes,
        "ok": found.ok,
        "records": {
            "sent": found.sent,
            "acknowledged": found.acknowledged,
            "aborted": found.aborted,
            "delivered": found.delivered,
        },
        "output": {
            "records": found.outputs,
            "transactions": found.transactions,
            "latest_seconds": round(found.output_seconds, 3),
        },
        "faults": {
            kind: {"times": row.count, "worst_seconds": round(row.worst_seconds, 3), "repeats": row.repeats}
            for kind, row in sorted(found.rows.items())
        },
        "not_played": found.failed,
        "excused": {what: n for what, n in sorted(found.excused.items()) if n},
        "violations": {name: texts for name, texts in sorted(found.violations.items()) if texts},
    }

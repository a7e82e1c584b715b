"""``python -m sim.diagrams``: draw the state diagrams of ``docs/protocol.md`` from the protocol's tables.

``PYTHONPATH=agent:tests python -m sim.diagrams`` writes what stands between the markers; a test compares it.
"""

from __future__ import annotations

from pathlib import Path

from loadtrim_agent.protocol import assigned_partition, membership_table

__all__ = ["PAGE", "drawn"]

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
DIAGRAMS = {"membership": membership_table.diagram, "acquisition": assigned_partition.diagram}


def drawn(page: str) -> str:
    """Return the page with its diagrams as the tables have them.

    Raises:
        ValueError: a marker is missing.
    """
    for name, diagram in DIAGRAMS.items():
        begin, end = f"<!-- diagram: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{PAGE}: the markers of the diagram {name} are missing")
        page = f"{before}{begin}```mermaid\n{diagram()}\n```\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Made-up runs, written as the journals that real processes would have left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from payments.service import JOURNAL_VERSION

MILLISECOND = 1_000_000
EPOCH_NS = 1_700_000_000_000_000_000


@dataclass
class Story:
    """Writes journals into a directory; times are milliseconds from the start of the story.

    The producer's ids are ``<partition>:<offset>``, so that a test can read them.
    """

    directory: Path
    topic: str = "payments"
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def _line(self, name: str, role: str, *fields: object) -> None:
        if name not in self._lines:
            pid = self.pid(name)
            self._lines[name] = [f"S,{JOURNAL_VERSION},{role},{name},{pid},0,{EPOCH_NS}"]
        self._lines[name].append(",".join(map(str, fields)))

    def pid(self, name: str) -> int:
        return self._pids.setdefault(name, 1000 + len(self._pids))

    def starts_with_the_id_of(self, dead: str, name: str, at: float) -> None:
        """Have a process start later, to which the system gives the id of one that is gone."""
        pid = self._pids[name] = self.pid(dead)
        self._lines[name] = [f"S,{JOURNAL_VERSION},service,{name},{pid},{round(at * MILLISECOND)},{EPOCH_NS}"]

    def sent(self, partition: int, offset: int, at: float = 0, *, acknowledged: bool = True) -> None:
        record_id = f"{partition}:{offset}"
        now = round(at * MILLISECOND)
        timestamp_ms = EPOCH_NS // MILLISECOND + int(at)
        self._line("producer", "producer", "P", record_id, self.topic, partition, now, timestamp_ms)
        if acknowledged:
            self._line("producer", "producer", "A", record_id, self.topic, partition, offset, now + MILLISECOND)

    def send_all(self, counts: dict[int, int]) -> None:
        """Per partition, so many records from offset 0 on, all at the start."""
        for partition, count in counts.items():
            for offset in range(count):
                self.sent(partition, offset)

    def handed(self, who: str, partition: int, offset: int, at: float, *, record_id: str = "") -> None:
        record_id = record_id or f"{partition}:{offset}"
        self._line(who, "service", "H", self.topic, partition, offset, record_id, round(at * MILLISECOND))

    def done(self, who: str, partition: int, offset: int, at: float) -> None:
        self._line(who, "service", "D", self.topic, partition, offset, round(at * MILLISECOND))

    def works(self, who: str, partition: int, offsets: range, at: float, *, takes: float = 5) -> float:
        """One record after the other; returns the time after the last one."""
        for offset in offsets:
            self.handed(who, partition, offset, at)
            self.done(who, partition, offset, at + takes)
            at += takes + 0.1
        return at

    def ends(self, who: str, at: float) -> None:
        self._line(who, "service", "E", round(at * MILLISECOND))

    def dies(self, who: str, at: float) -> None:
        self._line("supervisor", "supervisor", "X", self.pid(who), round(at * MILLISECOND))

    def loses_lease(self, who: str, at: float) -> None:
        self._line("supervisor", "supervisor", "L", self.pid(who), round(at * MILLISECOND))

    def committed(self, partition: int, offset: int) -> None:
        self._line("supervisor", "supervisor", "C", self.topic, partition, offset)

    def path(self, name: str) -> Path:
        return self.directory / f"{name}-{self.pid(name)}.journal"

    def write(self) -> Path:
        """Write all journals; returns their directory."""
        for name, lines in self._lines.items():
            self.path(name).write_text("\n".join(lines) + "\n")
        return self.directory

"""A group as the scaler ``metric`` knows it: who leads it, and who is not ready."""

from __future__ import annotations

__all__ = ["FakeGroup"]


class FakeGroup:
    """Generation 7 is led here, and nobody is not ready, until a test says otherwise."""

    def __init__(self) -> None:
        self.led: int | None = 7
        self.unready: set[str] = set()
        self.fails_next = False
        """The member leads nothing when it is asked next."""

    def generation(self) -> int | None:
        if self.fails_next:
            self.fails_next = False
            return None
        return self.led

    def is_unready(self, instance: str) -> bool:
        return instance in self.unready

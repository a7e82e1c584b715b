"""The schedule of faults: drawn ahead from a seed, so that it can be printed before anything happens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Step", "drawn"]

AT_ONCE_SHARE = 0.2
"""Share of the steps in which a second fault begins together with the first. Chosen."""
PAUSE_SECONDS = (0.5, 3.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its faults begin together; the next step begins when all is well again, and a pause is over."""

    number: int
    kinds: tuple[str, ...]
    pause_seconds: float

    def rng(self, seed: int, kind: str) -> random.Random:
        """What a fault of this step draws its details from."""
        return random.Random(f"{seed} {self.number} {kind}")

    def __str__(self) -> str:
        return f"{self.number:>4}  {' + '.join(self.kinds)}, then {self.pause_seconds:.1f} s"


def drawn(seed: int, kinds: Sequence[str], alone: frozenset[str] = frozenset()) -> Iterator[Step]:
    """Draw steps without end: each kind comes once before any comes again.

    Args:
        seed: of the run.
        kinds: to draw from.
        alone: kinds that bear no other beside them.
    """
    rng = random.Random(f"schedule {seed}")
    number = 0
    while True:
        deck = rng.sample(list(kinds), len(kinds))
        while deck:
            chosen = [deck.pop()]
            second = rng.choice(kinds)
            if rng.random() < AT_ONCE_SHARE and second != chosen[0] and not {second, chosen[0]} & alone:
                chosen.append(second)
            yield Step(number, tuple(chosen), round(rng.uniform(*PAUSE_SECONDS), 1))
            number += 1

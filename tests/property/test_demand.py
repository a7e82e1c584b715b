"""Programs that work on many records at once ask for as many replicas as they need: the product on virtual time."""

from __future__ import annotations

import pytest

from whole.demand import Demand

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "load", "replicas"),
    [("semaphore", 0.7, 1), ("semaphore", 1.5, 2), ("gather", 0.3, 1), ("workers", 0.7, 1)],
)
def test_a_constant_load_is_given_the_fewest_replicas(program: str, load: float, replicas: int) -> None:
    """They were given all that there may be: work on ten records at once looked like ten times the work."""
    outcome = Demand(program, load).run(60.0)
    assert outcome.wanted[-1][1] == replicas, outcome.wanted
    assert outcome.late_second_half == 0

"""Every pitfall of scaling on Kubernetes has tests that are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from architecture.pitfalls import Pitfall, complaints, load


def test_every_pitfall_has_tests_that_are_there() -> None:
    found = list(complaints(load()))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"number": 2}, "does not number its pitfalls"),
        ({"tests": (), "why": ""}, "pitfall 1 wants tests"),
        ({"tests": ["architecture/test_pitfalls.py::test_it_is_gone"]}, "which is not there"),
        ({"tests": ["kubernetes/test_gone.py::test_the_drained_pod_goes"]}, "which is not there"),
    ],
    ids=["number", "nothing", "no test", "no file"],
)
def test_what_is_not_so_is_told(changes: dict[str, object], complaint: str) -> None:
    pitfalls: list[Pitfall] = load()
    pitfalls[0] = replace(pitfalls[0], **changes)  # type: ignore[arg-type]
    assert [each for each in complaints(pitfalls) if complaint in each]

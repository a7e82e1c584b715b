"""What breaks while a control topic is read is told as what it is."""

from __future__ import annotations

import pytest

from loadtrim.observer.connection import Connection
from loadtrim.observer.control_topic import outside_errors


@pytest.mark.parametrize("fault", [AssertionError("no such state"), ValueError("not a number"), ImportError("gone")])
def test_a_fault_of_ours_is_not_told_as_settings_that_cannot_be_used(fault: Exception) -> None:
    """A reader that broke told the user to check TLS and SASL, without a trace."""
    with pytest.raises(type(fault)) as raised, outside_errors(Connection("localhost:9092", "--bootstrap"), "reading"):
        raise fault
    assert raised.value is fault

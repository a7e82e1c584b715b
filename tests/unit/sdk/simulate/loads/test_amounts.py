"""Numbers as people and monitors write them, and what they count."""

from __future__ import annotations

import pytest

from loadtrim.simulate.loads.amounts import Quantity, amounts_of, looks_like_series, quantity_of
from loadtrim.simulate.loads.load import LoadFileError


def read(*values: object, sparse: bool = False) -> list[float | None]:
    return amounts_of("value", [(f"line {at}", value) for at, value in enumerate(values, 2)], sparse).numbers


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        (("1.2 K", "0.5 K", "900"), [1200, 500, 900]),
        (("3.4 Mil", "2 Bil", "1 M", "1 G", "2k"), [3.4e6, 2e9, 1e6, 1e9, 2e3]),
        (("112 c/s", "1.2 K c/s"), [112, 1200]),
        (("6,5", "6,067"), [6.5, 6.067]),
        (("6,067", "1,234,567"), [6067, 1234567]),
        (("6,067", "6,067.5"), [6067, 6067.5]),
        (("1.234,5", "7,25"), [1234.5, 7.25]),
        (("1 234", "1'234'567", "1\u202f234"), [1234, 1234567, 1234]),
        (("1e3", 5, 2.5), [1000, 5, 2.5]),
    ],
)
def test_numbers_are_read_as_they_are_written(written: tuple[object, ...], numbers: list[float]) -> None:
    assert read(*written) == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (("5", "6,067"), "line 3: '6,067' may be 6067 or 6.067"),
        (("1,5", "1,234,567"), "line 2: .*'1,5' the comma begins the fraction, and in '1,234,567' it parts"),
        (("1 2",), "line 2: value is '1 2'"),
        (("-5 c/s",), "line 2: value is '-5'"),
        (("5 MB/s",), "line 2: value has the unit 'MB/s'"),
        (("12 ms",), "line 2: value has the unit 'ms'"),
        (("5 c/s", "5 c/m"), "'c/s', 'c/m', which are per unlike times"),
        (("1.2.3",), "line 2: value is '1.2.3'"),
        ((True,), "line 2: value is True"),
        ((None,), "line 2: value is None"),
        (("5", ""), "line 3: value is ''"),
    ],
)
def test_what_may_be_two_numbers_or_none_is_refused_with_its_place(written: tuple[object, ...], said: str) -> None:
    with pytest.raises(LoadFileError, match=said):
        read(*written)


def test_a_monitors_empty_cells_are_no_numbers() -> None:
    told = amounts_of("value", [("line 2", "5"), ("line 3", ""), ("line 4", "NaN"), ("line 5", None)], sparse=True)
    assert told.numbers == [5, None, None, None]
    assert told.notes == ("3 rows have no value and were left out",)


def test_rounded_numbers_are_said() -> None:
    (note,) = amounts_of("value", [("line 2", "1.2 K")]).notes
    assert note.startswith("numbers like '1.2 K' are rounded")


@pytest.mark.parametrize(("unit", "seconds"), [("c/s", 1), ("req/s", 1), ("rps", 1), ("ops/min", 60), ("c/m", 60)])
def test_a_unit_tells_a_rate(unit: str, seconds: float) -> None:
    assert amounts_of("value", [("line 2", f"5 {unit}")]).unit_seconds == seconds


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("rate", Quantity.RATE),
        ("records_per_second", Quantity.RATE),
        ("sum(rate(orders_total[5m]))", Quantity.RATE),
        ("irate(orders_total[1m])", Quantity.RATE),
        ("count", Quantity.COUNT),
        ("orders_total", Quantity.COUNTER),
        ('kafka_topic_partition_current_offset{partition="3"}', Quantity.COUNTER),
        ("value", None),
        ("increase(orders_total[1m])", None),
    ],
)
def test_a_name_tells_what_is_counted(name: str, quantity: Quantity | None) -> None:
    assert quantity_of(name) == quantity


def test_a_word_is_no_series() -> None:
    assert looks_like_series('{pod="a"}')
    assert looks_like_series("rate(x[5m])")
    assert not looks_like_series("amount")

"""Prices in the currency that they are given in."""

from __future__ import annotations

import pytest

from loadtrim.simulate import WrongLoadError
from loadtrim.simulate.study.price import Price, parse_price


@pytest.mark.parametrize(
    ("text", "price", "shown"),
    [
        ("0.12", Price(per_replica_hour=0.12), "1,234.50"),
        ("$0.12", Price(per_replica_hour=0.12, before="$"), "$1,234.50"),
        ("0.12EUR", Price(per_replica_hour=0.12, behind="EUR"), "1,234.50 EUR"),
        (" 0.12 \u20ac ", Price(per_replica_hour=0.12, behind="\u20ac"), "1,234.50\u20ac"),
        (".5", Price(per_replica_hour=0.5), "1,234.50"),
    ],
)
def test_a_price_is_read_and_amounts_are_written_like_it(text: str, price: Price, shown: str) -> None:
    assert parse_price(text) == price
    assert price.text(1234.5) == shown


@pytest.mark.parametrize("text", ["", "0", "-1", "cheap", "1,5", "$1$", "nan", "inf", "1 2"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(WrongLoadError, match=r"--price is .*; write a number above 0"):
        parse_price(text)


def test_a_load_and_a_month_of_it() -> None:
    price = Price(per_replica_hour=0.12)
    assert price.of(30.0) == pytest.approx(0.06)
    assert price.per_month(30.0, 600.0) == pytest.approx(3 * 0.12 * 730)


@pytest.mark.parametrize(("amount", "shown"), [(0.0, "0.00"), (0.0109, "0.0109"), (0.5, "0.500"), (12.0, "12.00")])
def test_small_amounts_are_told_apart(amount: float, shown: str) -> None:
    assert Price(per_replica_hour=1.0).text(amount) == shown

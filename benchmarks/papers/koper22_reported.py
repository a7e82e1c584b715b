"""Koper'22, tables 5.1 to 5.3: query -> autoscaler and its parameter -> what was reported."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REPORTED", "KoperReported"]


@dataclass(frozen=True, slots=True)
class KoperReported:
    """A row."""

    latency: float
    """Mean event-time lag, seconds."""
    replicas: float
    """Mean number of Taskmanagers."""
    scalings: int


REPORTED: dict[str, dict[str, KoperReported]] = {
    "q1": {
        "HPA 70": KoperReported(1.16, 5.02, 28),
        "Varga v2 30": KoperReported(2.05, 4.60, 26),
        "Varga v2 50": KoperReported(3.39, 3.33, 17),
        "Dhalion 1": KoperReported(3.58, 3.16, 22),
        "Dhalion 5": KoperReported(3.88, 2.89, 20),
        "Dhalion 10": KoperReported(5.58, 3.15, 23),
        "HPA 50": KoperReported(0.79, 8.25, 40),
        "HPA 90": KoperReported(6.31, 3.84, 16),
        "Varga v2 70": KoperReported(9.25, 2.96, 13),
        "DS2-adapted 33": KoperReported(12.88, 2.95, 16),
        "Varga v1 50": KoperReported(1.95, 13.96, 39),
        "Varga v1 30": KoperReported(1.09, 14.88, 40),
        "Varga v1 70": KoperReported(4.34, 12.87, 49),
        "DS2 33": KoperReported(17.59, 2.90, 16),
        "DS2-adapted 66": KoperReported(21.13, 3.36, 21),
        "DS2 66": KoperReported(25.24, 3.19, 24),
        "DS2-adapted 0": KoperReported(43.19, 2.35, 11),
        "DS2 0": KoperReported(121.59, 2.19, 13),
    },
    "q3": {
        "Dhalion 5": KoperReported(3.18, 4.27, 23),
        "Dhalion 1": KoperReported(3.27, 4.25, 24),
        "Dhalion 10": KoperReported(4.58, 4.36, 30),
        "HPA 70": KoperReported(6.16, 5.24, 27),
        "HPA 50": KoperReported(3.58, 9.71, 42),
        "Varga v1 30": KoperReported(2.97, 14.78, 37),
        "Varga v1 50": KoperReported(3.82, 14.35, 43),
        "Varga v1 70": KoperReported(10.18, 11.46, 47),
        "Varga v2 30": KoperReported(19.94, 6.42, 44),
        "DS2-adapted 66": KoperReported(22.78, 3.65, 16),
        "DS2 66": KoperReported(25.18, 3.50, 20),
        "Varga v2 50": KoperReported(31.79, 4.43, 32),
        "DS2-adapted 33": KoperReported(48.23, 3.16, 11),
        "Varga v2 70": KoperReported(47.43, 4.07, 33),
        "HPA 90": KoperReported(121.42, 3.13, 8),
        "DS2 33": KoperReported(164.96, 2.97, 22),
        "DS2-adapted 0": KoperReported(247.74, 3.11, 9),
        "DS2 0": KoperReported(971.28, 2.52, 31),
    },
    "q11": {
        "DS2-adapted 33": KoperReported(2.94, 4.20, 14),
        "DS2 66": KoperReported(2.38, 5.63, 28),
        "DS2-adapted 66": KoperReported(3.56, 5.79, 15),
        "Varga v2 50": KoperReported(4.89, 5.71, 27),
        "Varga v2 30": KoperReported(3.69, 8.15, 29),
        "HPA 50": KoperReported(3.16, 10.74, 44),
        "DS2 0": KoperReported(13.60, 3.75, 24),
        "Dhalion 5": KoperReported(13.91, 3.85, 22),
        "Varga v1 50": KoperReported(4.44, 14.30, 40),
        "Varga v1 30": KoperReported(4.14, 15.31, 36),
        "Varga v1 70": KoperReported(6.27, 13.92, 38),
        "Varga v2 70": KoperReported(18.01, 4.75, 29),
        "DS2 33": KoperReported(18.67, 6.31, 25),
        "Dhalion 10": KoperReported(43.46, 5.20, 27),
        "HPA 70": KoperReported(48.16, 7.88, 26),
        "Dhalion 1": KoperReported(64.66, 7.62, 29),
        "DS2-adapted 0": KoperReported(92.06, 6.47, 18),
        "HPA 90": KoperReported(428.35, 2.73, 7),
    },
}

"""Claims of each paper that can be held against a run: at most twelve rows a paper, our own policy last.

Every figure of a row is looked up in the tables of its experiment (:mod:`.digest`). What stands here is the reason why.
"""

from __future__ import annotations

from benchmarks.papers.digest import Claim
from benchmarks.papers.landau24 import CLAIMS as LANDAU_CLAIMS
from benchmarks.papers.landau24 import LATENCY
from benchmarks.papers.own_policy import OWN

__all__ = ["CLAIMS"]

_FIRST, _SECOND = "Experiment 1", "Experiment 2"
_W1, _SKEWED, _W2 = "W1, 10 minutes", "W1 skewed", "W2, taxi trips"
_HEARTBEATS, _IMPOSED = "Heartbeats of 0.5 s", "W1 with imposed"
_SMOOTH, _CLUMPED = "Smooth stand-in: a day", "Clumped stand-in"


def _own(load: str, *measures: str, why: str = "") -> Claim:
    """Our own policy on one load."""
    told = f"**`objective`** on {load}: {', '.join(measures)}"
    return Claim(what=told, table=OWN, figures=tuple(f"{load}, {measure}" for measure in measures), why=why)


_ICCBDC22 = (
    Claim(
        what="experiment 1, load-aware: in time / replica-minutes",
        table=_FIRST,
        figures=("load-aware, in time", "load-aware, replica-minutes"),
        why="the steps that its figure draws integrate to 21.4 replica-minutes, its text has 18.0",
    ),
    Claim(
        what="experiment 1, cooperative sticky: in time",
        table=_FIRST,
        figures=("cooperative sticky, in time",),
        why="which partitions Kafka leaves together is chance: 12 orders here",
    ),
    Claim(
        what="experiment 1, cooperative sticky: most records waiting",
        table=_FIRST,
        figures=("cooperative sticky, most records waiting",),
        why="the same; ours counts records not done, theirs end minus committed, in polls of up to 500",
    ),
    Claim(
        what="experiment 2, load-aware: in time",
        table=_SECOND,
        figures=("load-aware, in time",),
        why="the phase of the looks: one just before a burst sees nothing",
    ),
    Claim(
        what="experiment 2, load-aware: replica-minutes",
        table=_SECOND,
        figures=("load-aware, replica-minutes",),
        why="the steps that its figure draws integrate to 27.7, its text has 26.1",
    ),
    Claim(
        what="experiment 2, cooperative sticky: in time",
        table=_SECOND,
        figures=("cooperative sticky, in time",),
        why="chance, as above",
    ),
    Claim(
        what="experiment 2, decisions every 30 s: in time",
        table=_SECOND,
        figures=("decisions every 30 s, in time",),
        why="where in the load a decision comes is chance",
    ),
    Claim(
        what="experiment 2, as many as partitions: replica-minutes",
        table=_SECOND,
        figures=("over-provisioned, replica-minutes",),
    ),
    _own("experiment 1", "in time", "replica-minutes"),
    _own("experiment 2", "in time", "replica-minutes"),
)

_CLOSER24 = (
    Claim(
        what="W1, algorithm 2: in time / replica-minutes",
        table=_W1,
        figures=("Alg. 2, in time", "Alg. 2, replica-minutes"),
        why="the phase of the looks decides; its text has no bursts and 200 records/s, for which fewer replicas do",
    ),
    Claim(
        what="W1, linear by what a replica does within W: in time / replica-minutes",
        table=_W1,
        figures=("linear, mu x W, in time", "linear, mu x W, replica-minutes"),
        why="its text has what a replica does in a second, with which far fewer are asked for",
    ),
    Claim(
        what="W1, optimal: in time / replica-minutes",
        table=_W1,
        figures=("optimal, played, in time", "optimal, played, replica-minutes"),
    ),
    Claim(
        what="W1 skewed, algorithm 2: in time / replica-minutes",
        table=_SKEWED,
        figures=("Alg. 2, in time", "Alg. 2, replica-minutes"),
        why="as W1",
    ),
    Claim(
        what="W1, gained by heartbeats of 0.5 s instead of 3 s, points",
        table=_HEARTBEATS,
        figures=("W1, gained by 0.5 s, points",),
    ),
    Claim(
        what="W1, rebalances of 0.5 s, algorithm 2: in time / replica-minutes",
        table=_IMPOSED,
        figures=("Alg. 2, t_r = 0.5 s, in time", "Alg. 2, t_r = 0.5 s, replica-minutes"),
    ),
    Claim(
        what="W1, rebalances of 2 s, algorithm 2: in time / replica-minutes",
        table=_IMPOSED,
        figures=("Alg. 2, t_r = 2 s, in time", "Alg. 2, t_r = 2 s, replica-minutes"),
    ),
    Claim(
        what="W2, algorithm 2: in time / replica-minutes",
        table=_W2,
        figures=("Alg. 2, in time", "Alg. 2, replica-minutes"),
        why="its taxi trips are not public: other ones at the same speed",
        data_public=False,
    ),
    Claim(
        what="W2, linear by what a replica does within W: in time / replica-minutes",
        table=_W2,
        figures=("linear, mu x W, in time", "linear, mu x W, replica-minutes"),
        why="the same",
        data_public=False,
    ),
    _own("W1", "in time", "replica-minutes"),
    _own("W1 skewed", "in time", "replica-minutes"),
    _own("W2", "in time", "replica-minutes"),
)

_LANDAU24 = (
    *(
        Claim(
            what=f"delta {delta}: MWF moves less than NFD / opens more than the fewest",
            table=LANDAU_CLAIMS,
            figures=(
                f"delta {delta}: MWF moves less than NFD, the best baseline",
                f"delta {delta}: MWF opens more than the fewest (CBS)",
            ),
            why=f"by its authors' data {data} % less",
        )
        for delta, data in ((5, 55.2), (25, 24.0))
    ),
    Claim(
        what="on the front of bins and moves at deltas 5 to 25: MWF / MBF / MBFP / MWFP",
        table=LANDAU_CLAIMS,
        figures=tuple(
            f"{name} on the Pareto front, share of the deltas 5 to 25" for name in ("MWF", "MBF", "MBFP", "MWFP")
        ),
    ),
    Claim(what="MWF, consumers on average", table=LATENCY, figures=("mwf, consumers on average",)),
    *(
        Claim(what=f"{told}, p90 of what is late", table=LATENCY, figures=(f"{name}, p90 latency",), why=why)
        for told, name, why in (
            ("MWF", "mwf", "C is 75 % of what a consumer does in its code, 5/6 in its text"),
            ("Kafka with 15 consumers", "kd_15", "the same"),
            ("Kafka with 24 consumers", "kd_24", "the same"),
        )
    ),
    *(
        Claim(
            what=f"its successor (JPDC 201, 2025): {told}, p99",
            table=LATENCY,
            figures=(f"{name}, p99 latency of all bytes",),
            why="its abstract does not say of which bytes, and its text was not found: all bytes here",
        )
        for told, name in (("MWF", "mwf"), ("Kafka with as many", "kd_15"))
    ),
    Claim(
        what="**`trim`**, fewest bins: consumers, p90 of what is late, p99 of all bytes",
        table=LATENCY,
        figures=("trim, consumers on average", "trim, p90 latency", "trim, p99 latency of all bytes"),
        why="`objective` has no part in it: the paper's model knows bins alone",
    ),
)

_LI_KU = (
    *(
        Claim(
            what=f"{stand_in}, {name}: over W / consumer-seconds",
            table=table,
            figures=(f"{name}: over W", f"{name}: consumer-seconds"),
            why=why,
            data_public=False,
        )
        for stand_in, table in (("smooth", _SMOOTH), ("clumped", _CLUMPED))
        for name, why in (
            ("proposed, eager", "its load is not public; by its own figures little but rebalances was late"),
            ("proposed, cooperative", "the same"),
            ("FLAS", "the same; its lower threshold is a guess"),
            ("KEDA", "the same; its windows are Kubernetes' own"),
        )
    ),
    _own("smooth stand-in", "over W", "consumer-seconds"),
    _own("clumped stand-in", "over W", "consumer-seconds"),
)

_KOPER22 = (
    *(
        Claim(
            what=f"query {query}, {name}: latency / replicas",
            table=f"Query {query}",
            figures=(f"{name}: latency", f"{name}: replicas"),
            why=why,
        )
        for query, name, why in (
            (1, "HPA 70", "backpressure between Flink's operators is not played"),
            (1, "Dhalion 5", "a member that lags behind is busy all the time here, and looks less busy in Flink"),
            (1, "DS2 33", ""),
            (3, "HPA 70", "as query 1"),
            (3, "Dhalion 5", "its replicas set what a replica can do here"),
            (3, "DS2 33", ""),
            (11, "HPA 70", "as query 1"),
            (11, "DS2 33", "a loop of small steps up: each stops the job for 24 s"),
            (11, "DS2-adapted 33", ""),
        )
    ),
    *(
        _own(f"query {query}", "mean latency", "replicas", why="W is 5 s; the thesis asks for no share")
        for query in (1, 3, 11)
    ),
)

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "iccbdc22": _ICCBDC22,
    "closer24": _CLOSER24,
    "landau24": _LANDAU24,
    "li_ku": _LI_KU,
    "koper22": _KOPER22,
}
"""By the name of the experiment; each at most :data:`.digest.ROWS_MAX`."""

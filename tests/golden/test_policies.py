"""Every policy's answers, worked by hand from its paper.

One load step for all: ten partitions, records of 5 ms (mu = 200/s), W = 0.5 s. 890 records/s arrive at two replicas
(89/s per partition, work 4.45 busy seconds/s); then 100 records/s at five replicas. Cases of single papers follow.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.history import Second
from loadtrim_agent.planning.published.policies.li_ku import queueing
from loadtrim_agent.planning.registry import POLICIES, make_policy
from loadtrim_agent.planning.values import Sizing
from unit.planning.sizing.test_policy import CONFIG, EVERYTHING, answer_of, entry, memory_of, seconds, tomorrow, view
from unit.planning.virtual_group import T

PARTITIONS = 10


def decide(
    choice: str,
    rate: float,
    replicas: int,
    *,
    times: int = 1,
    every: float = 1.0,
    lag: int = 0,
    lag_seconds: float = 0.0,
    done: float | None = None,
    slope: float = 0.0,
    latency: float = 0.02,
    there: int | None = None,
    memory: dict[str, float] | None = None,
    shares: tuple[float, ...] = (1.0,) * PARTITIONS,
    packer: str = "ffd",
) -> list[Sizing]:
    """Look so many times in a row at one picture of a group.

    Args:
        choice: policy with its parameters.
        rate: records/s of the group.
        replicas: wanted so far.
        times: looks. every: seconds between two.
        lag: records that wait in the group. lag_seconds: age of the oldest. done: records/s (as many as can be).
        slope: of the lag, records/s. latency: mean of what is done.
        there: replicas that are there; default: all.
        memory: of the policy, beside what was wanted.
        shares: weights of the partitions.
        packer: for the policy that asks it.
    """
    there = replicas if there is None else there
    done = min(rate, 200.0 * there) if done is None else done
    policy = make_policy(choice, EVERYTHING)
    remembered = {"wanted": float(replicas), **(memory or {})}
    answers = []
    for look in range(times):
        now = T + look * every
        items = tuple(
            entry(
                number,
                rate * share / sum(shares),
                owner=f"m{number % there}",
                lag=round(lag * share / sum(shares)),
                lag_low=round(lag * share / sum(shares)),
                lag_high=round(lag * share / sum(shares)),
            )
            for number, share in enumerate(shares)
        )
        past: tuple[Second, ...] = seconds(
            now, done=done, busy=done / 200.0 / there, replicas=there, latency=latency, lag=lag, slope=slope
        )
        config = structs.replace(CONFIG, policy=choice, packer=packer)
        picture = view(
            items,
            there,
            config=config,
            now=now,
            past=past,
            lag_seconds=lag_seconds,
            future=tomorrow(items, now),
        )
        answers.append(answer_of(policy, picture, remembered))
        remembered = memory_of(answers[-1])
    return answers


def counts(choice: str, rate: float, replicas: int, **more: Any) -> list[int]:
    return [answer.replicas for answer in decide(choice, rate, replicas, **more)]


UP = {
    # Bins of 0.9 x 200 = 180 records/s take two of 89/s: 5.
    "closer24": [5],
    "closer24_algorithm_1": [5],
    # The same, but nothing in the first 15 s.
    "closer24_as_run": [2] * 15 + [5],
    # Bins of 200 records/s take two of 89/s: 5; in one pass of first fit as well.
    "iccbdc22": [5],
    "iccbdc22_as_run": [5],
    # 890 / (200 x 0.9) = 4.9: 5.
    "linear": [5],
    # A bin of 5/6 takes one partition of 0.445: 10. One of 3/4 as well.
    "landau24": [10],
    "landau24_as_run": [10],
    # 1 / (200 - 890 / c) <= 0.5 <=> c >= 890 / 198 = 4.5: 5. The second look that says so counts.
    "li_ku": [2, 5],
    # Busy for 100 %, 70 % is aimed at: 2 x 1 / 0.7 = 2.9: 3. The next look is 15 s later: 3 are asked for, 2 there, and
    # with one idle 2 x 1 / 3 / 0.7 = 0.95 is within the tolerance.
    "hpa_cpu": [3],
    "varga_v1": [3],
    "varga_v2": [3],
    # 89 records wait: 89 / 290 = 0.3: 1, but 2 were wanted (see below for more lag).
    "keda": [2],
    # The oldest have waited for 6 s > 5 s and 500 more wait each second: 2 x 890 / 400 x 1.2 = 5.3: 6.
    "dhalion_adapted": [6],
    # 890 / 200 = 4.45: 5 of DS2, x 1.33 = 6.65: 7. Adapted: 6 s of lag are more than 5.
    "ds2_modern": [7],
    "ds2_modern_adapted": [7],
    # 0.6 s > W twice in a row: one more.
    "flas": [2, 3],
    # As many as were there.
    "fixed": [2],
    # No peak is told: as many as have a partition.
    "overprovisioned": [10],
    # 200 x 0.5 = 100 records of a second per replica take one partition of 89: 10.
    "clairvoyant": [10],
    # An even stream of 4.45 busy seconds/s at 98 %: 4.54: 5, and ten partitions divide by five.
    "objective": [5],
}

DOWN = {
    # Bins of 0.4 x 200 = 80 records/s take eight of 10/s: 2.
    "closer24": [2],
    "closer24_algorithm_1": [2],
    "closer24_as_run": [5] * 15 + [2],
    # 100 < 200: 1.
    "iccbdc22": [1],
    "iccbdc22_as_run": [1],
    # 100 / (200 x 0.4) = 1.25: 2.
    "linear": [2],
    # The first look packs: ten of 0.05 fit one bin.
    "landau24": [1],
    "landau24_as_run": [1],
    # The queueing model asks for 1, the buffer for 5 - 1.5 = 3.5. Ten looks, then 3.5, rounded up: 4.
    "li_ku": [5] * 9 + [4],
    # 5 x 0.1 / 0.7 = 0.7: 1, but 5 were wanted in the last 300 s.
    "hpa_cpu": [5],
    "varga_v1": [5],
    "varga_v2": [5],
    "keda": [5],
    # No lag, and busy for 10 % < 60 %: 5 x 0.8 = 4.
    "dhalion_adapted": [4],
    # 100 / 200 = 0.5: 1 of DS2, x 1.33: 2.
    "ds2_modern": [2],
    "ds2_modern_adapted": [2],
    # 0.02 s < 0.1 s twice in a row: one less.
    "flas": [5, 4],
    "fixed": [5],
    "overprovisioned": [10],
    # 100 records of a second fit one replica.
    "clairvoyant": [1],
    # 0.5 / 0.98 = 0.51: 1, when it has fitted for 2 s.
    "objective": [5, 5, 1],
}


def test_every_policy_is_here() -> None:
    assert UP.keys() == DOWN.keys() == POLICIES.keys()


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_step_up(name: str) -> None:
    expected = UP[name]
    late = {"lag_seconds": 6.0, "done": 400.0, "slope": 500.0, "latency": 0.6}
    assert counts(name, 890.0, 2, times=len(expected), lag=89, **late) == expected


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_step_down(name: str) -> None:
    expected = DOWN[name]
    assert counts(name, 100.0, 5, times=len(expected)) == expected


# -- CLOSER'24 and ICCBDC'22 -------------------------------------------------------------------------------------------


def test_algorithm_1_does_not_plan_for_the_lag_of_a_rebalance() -> None:
    """Six of 60/s with 29 waiting in each: three take 180/s and 87 of 90 records: 2. With 0.05 s of rebalance 32 each:
    two take 64 of 90 records: 3."""
    shares = (1.0,) * 6
    assert counts("closer24_algorithm_1", 360.0, 1, lag=6 * 29, shares=shares) == [2]
    assert counts("closer24", 360.0, 1, lag=6 * 29, shares=shares) == [3]


def test_iccbdc22_under_its_skewed_load() -> None:
    """Its second experiment: 27 % to two partitions, 46 % to three, mu = 100, W = 5 s. At 240/s: 64.8, 64.8, 36.8 three
    times. 36.8 beside each 64.8 is 101.6 > 100; two of 36.8 together 73.6: four members."""
    skewed = (0.27, 0.27, 0.46 / 3, 0.46 / 3, 0.46 / 3)
    assert counts("iccbdc22:mu=100", 240.0, 1, shares=skewed) == [4]
    # At 230/s: 62.1, 62.1 and 35.3 three times; 97.4 fit together, and the third of 35.3 is alone: three members.
    assert counts("iccbdc22:mu=100", 230.0, 1, shares=skewed) == [3]


def test_a_lag_beyond_the_objective_counts_as_a_whole_member() -> None:
    """W = 0.5 s, mu = 200: 100 records a member. One partition with 5,000 waiting: one for it, one more."""
    shares = (0.99, *[0.01 / 9] * 9)
    assert counts("iccbdc22", 20.0, 1, lag=5_000, shares=shares) == [2]


def test_iccbdc22_as_run_waits_after_any_scaling() -> None:
    """Up at once, and then not down for 30 s."""
    assert counts("iccbdc22_as_run", 900.0, 2) == [5]
    remembered = {"scaled_at": T}
    assert counts("iccbdc22_as_run", 100.0, 5, times=32, memory=remembered) == [5] * 30 + [1, 1]


def test_iccbdc22_moves_partitions_only_where_a_member_has_too_much() -> None:
    """mu = 100, 160/s in four partitions, the first and the third m0's. Even: 40 each. Uneven: m0 has 140."""
    even = decide("iccbdc22:mu=100", 160.0, 2, shares=(1.0,) * 4)[0]
    assert (even.replicas, even.reason) == (2, "fits")
    # Packed anew two do: 80 beside 10, 60 beside 10.
    uneven = decide("iccbdc22:mu=100", 160.0, 2, shares=(8.0, 1.0, 6.0, 1.0))[0]
    assert (uneven.replicas, uneven.reason, uneven.place) == (2, "placement", True)


def test_linear_stays_between_the_factors() -> None:
    """300/s: up needs 300 / 180 = 1.7: 2, down 300 / 80 = 3.75: 4. From two to four replicas nothing changes."""
    assert [counts("linear", 300.0, replicas)[0] for replicas in (1, 2, 3, 4, 5)] == [2, 2, 3, 4, 4]


def test_overprovisioned_for_a_peak() -> None:
    """900/s over ten: 90 each, two in 180: 5, whatever comes."""
    assert counts("overprovisioned:peak_records_per_second=900", 10.0, 1) == [5]
    # One replica more or less measured is no reason to shrink again.
    assert counts("overprovisioned:peak_records_per_second=900,f_up=1", 10.0, 1, memory={"most": 6.0}) == [6]


# -- clairvoyant -------------------------------------------------------------------------------------------------------


def test_the_optimum_of_closer24_with_85_a_replica() -> None:
    """Five equal partitions, 85 records of a second a replica: up to 85 one; up to 141 two (three of 28 in one); up to
    212 three (two of 42 in one); then five: four would have to take two of more than 42.5, as three would."""
    five = (1.0,) * 5
    found = [counts("clairvoyant:limit_records_per_second=85", rate, 1, shares=five)[0] for rate in (85, 86, 142, 213)]
    assert found == [1, 2, 3, 5]
    sliced = "clairvoyant:limit_records_per_second=85,sliced=1"
    assert [counts(sliced, rate, 1, shares=five)[0] for rate in (85, 86, 170, 171, 256)] == [1, 2, 2, 3, 4]


def test_clairvoyant_asks_a_start_up_time_ahead_and_bridges_short_pauses() -> None:
    """Start-up 3 s and a decision interval of 1 s: the most of the next 4 s. Without: of this second."""
    items = (entry(0, 10.0), entry(1, 10.0), entry(2, 10.0))
    future = replace(tomorrow(items, T), begins_at=T, records=((30.0,) * 3,) * 3 + ((90.0,) * 3,) + ((30.0,) * 3,) * 9)

    def at(second: float, with_startup: float) -> int:
        picture = view(items, 1, now=T + second, future=future)
        return answer_of(make_policy("clairvoyant", EVERYTHING, {"with_startup": with_startup}), picture).replicas

    # 100 a replica: 90 in all fit one, three of 90 need three.
    assert [at(second, 0.0) for second in (0, 2, 3, 4)] == [1, 1, 3, 1]
    assert [at(second, 1.0) for second in (-1.5, 0, 2, 3, 4)] == [1, 3, 3, 3, 1]


def test_clairvoyant_moves_what_does_not_fit_and_nothing_that_does() -> None:
    """100 records of a second a replica, three of them. Who just came is dealt to for 3 s."""

    def placed(shares: tuple[float, ...], rate: float) -> list[bool]:
        choice = "clairvoyant:limit_records_per_second=100"
        return [each.place for each in decide(choice, rate, 3, times=6, shares=shares)]

    # 80, 80 and 40: all fit.
    assert placed((1.0,) * 5, 200.0) == [True] * 4 + [False] * 2
    # 145, 36 and 18 would fit as 73, 73 and 55.
    assert placed((4.0, 1.0, 1.0, 4.0, 1.0), 200.0) == [True] * 6
    # 60, 60 and 240 in one partition, which fits nowhere.
    assert placed((1.0, 1.0, 8.0, 1.0, 1.0), 360.0)[-1] is False
    # 168, 168 and 84 in five equal ones, each of which takes a replica: two more are waited for.
    assert placed((1.0,) * 5, 420.0)[-1] is False


# -- Li & Ku -----------------------------------------------------------------------------------------------------------


def test_the_queueing_model_of_li_ku() -> None:
    """mu = 58, T_a = 0.5 s: 56 requests/s a consumer. The paper's maximum of 500/s: 8.93: 9."""
    assert queueing(56.0, 58.0, 0.5) == 1
    assert queueing(57.0, 58.0, 0.5) == 2
    assert queueing(500.0, 58.0, 0.5) == 9
    assert queueing(0.0, 58.0, 0.5) == 1
    # A consumer whose service alone takes longer than the objective: none is enough, so all there can be.
    assert counts("li_ku:mu=2", 10.0, 1, times=2) == [1, 10]


def test_the_buffer_of_li_ku() -> None:
    """c = 2, mu = 200: Buffer_t = 780. 2,340 wait: 2 + 2 x 1.5 = 5."""
    assert counts("li_ku", 300.0, 2, times=2, lag=2_340) == [2, 5]
    # 1,000 wait: 2 + 220 / 780 x 1.5 = 2.42, rounded up: 3.
    assert counts("li_ku", 300.0, 2, times=2, lag=1_000) == [2, 3]


def test_li_ku_with_cooperative_rebalancing_and_its_cool_down() -> None:
    assert counts("li_ku:up_notes=4", 900.0, 2, times=4) == [2, 2, 2, 5]
    # Nothing is looked at for 10 s; the second look after that scales.
    assert counts("li_ku", 1_800.0, 5, times=13, memory={"scaled_at": T}) == [5] * 11 + [10, 10]


def test_li_ku_goes_down_to_the_mean_of_the_last_three() -> None:
    """Seven notes of 4.9, then three of 3.5: their mean is 3.5, so 4; of all ten it would be 4.5, so 5."""
    notes = {f"down_{index}": 4.9 for index in range(7)}
    assert counts("li_ku", 100.0, 5, times=3, memory=notes) == [5, 5, 4]


def test_a_look_that_disagrees_clears_li_kus_notes() -> None:
    up = decide("li_ku", 900.0, 2)[0]
    assert memory_of(up)["up_0"] == 5.0
    down = decide("li_ku", 100.0, 2, memory=memory_of(up))[0]
    assert "up_0" not in memory_of(down)
    assert "down_0" in memory_of(down)


# -- Kubernetes' HPA, Varga, KEDA --------------------------------------------------------------------------------------


def test_the_example_of_the_hpa_equation() -> None:
    """Koper'22, 3.2.2: 60 % wanted, 90 % there, ten replicas: 15. Here five, so 90 % are 900/s: 5 x 1.5 = 7.5: 8."""
    assert counts("hpa_cpu:target_utilization=0.6", 900.0, 5) == [8]


def test_the_hpas_tolerance() -> None:
    """Five busy for 75 %: 0.75 / 0.7 = 1.07, within 0.1. For 78 %: 1.114, so 5.6: 6."""
    assert counts("hpa_cpu", 750.0, 5) == [5]
    assert counts("hpa_cpu", 780.0, 5) == [6]


def test_replicas_on_their_way_count_as_idle() -> None:
    """Six wanted, three there and all busy: 3 x 1.43 / 6 = 0.71 < 1: as before. Four wanted: 3 x 1.43 / 4 = 1.07: as
    before; with a target of 0.5: 3 x 2 / 4 = 1.5, so 4 x 1.5 = 6."""
    assert counts("hpa_cpu", 900.0, 6, there=3) == [6]
    assert counts("hpa_cpu", 900.0, 4, there=3) == [4]
    assert counts("hpa_cpu:target_utilization=0.5", 900.0, 4, there=3) == [6]


def test_the_hpa_looks_every_15_seconds_and_goes_down_after_its_window() -> None:
    """Busy for 10 %: 1 is wanted from the first look on; when 300 s are over, it is taken."""
    answers = counts("hpa_cpu", 100.0, 5, times=22, every=15.0)
    assert answers == [5] * 21 + [1]
    assert counts("hpa_cpu:down_window_seconds=30", 100.0, 5, times=50) == [5] * 45 + [1] * 5


def test_the_hpa_grows_by_four_or_doubles_per_period() -> None:
    """All busy, 10 % are aimed at: ten are wanted; from 1 at most 1 + 4 = 5, fifteen seconds later 5 + 5 = 10."""
    assert counts("hpa_cpu:target_utilization=0.1", 200.0, 1) == [5]
    assert counts("hpa_cpu:target_utilization=0.1", 900.0, 5, memory={"period_at": T - 15.0, "period_from": 1.0}) == [
        10
    ]


def test_vargas_lag_counts_above_its_threshold_only() -> None:
    """400/s are done and 500/s more wait: 1 + 500 / 400 = 2.25, so 2 x 2.25 = 4.5: 5, where utilisation asks for 3."""
    late = {"done": 400.0, "slope": 500.0}
    assert counts("varga_v1", 900.0, 2, lag=60_000, **late) == [5]
    assert counts("varga_v1", 900.0, 2, lag=40_000, **late) == [3]
    # Per replica, as in the runs: 60,000 < 2 x 50,000.
    assert counts("varga_v1:threshold_per_replica=1", 900.0, 2, lag=60_000, **late) == [3]


def test_vargas_lag_alone_never_lets_go() -> None:
    """60,000 wait and stay: 1 + 0 is the target, so 5 stay, although the members are hardly busy."""
    assert counts("varga_v1:down_window_seconds=0", 100.0, 5, times=2, every=15.0, lag=60_000) == [5, 5]
    assert counts("varga_v1:down_window_seconds=0", 100.0, 5, times=2, every=15.0, lag=0) == [1, 1]


def test_the_second_varga_rests_after_a_change() -> None:
    """Two became three 60 s ago: for 60 s more both metrics are 0, and the window keeps the three."""
    late = {"done": 600.0, "slope": 300.0, "lag": 60_000}
    memory = {"members": 3.0, "changed_at": T - 60.0}
    answers = decide("varga_v2", 900.0, 3, times=5, every=15.0, memory=memory, **late)
    assert [answer.replicas for answer in answers[:4]] == [3] * 4
    assert "both metrics are 0" in answers[0].text
    # 120 s are over: 3 x (1 + 300 / 600) = 4.5: 5.
    assert answers[4].replicas == 5
    assert counts("varga_v1", 900.0, 3, **late) == [5]


def test_keda_scales_by_lag() -> None:
    """900 / 290 = 3.1: 4. Li & Ku's maximum: ten partitions, ten replicas."""
    assert counts("keda", 900.0, 2, lag=900) == [4]
    assert counts("keda", 900.0, 2, lag=60_000) == [6]  # at most four more at once
    # 600 / (290 x 2) = 1.03 is within the tolerance; 640 / 580 = 1.103 is not, and 640 / 290 = 2.2: 3.
    assert counts("keda", 900.0, 2, lag=600) == [2]
    assert counts("keda", 900.0, 2, lag=640) == [3]


def test_keda_goes_to_the_least_when_inactive() -> None:
    """Looked at every 5 s; after 300 s without lag it goes down at once, whatever the HPA's window says."""
    choice = "keda:down_window_seconds=10000"
    answers = counts(choice, 0.0, 5, times=62, every=5.0)
    assert answers == [5] * 60 + [1, 1]
    assert counts(f"{choice},activation_lag_records=100", 1.0, 5, times=62, every=5.0, lag=100)[-1] == 1
    assert counts(f"{choice},activation_lag_records=99", 1.0, 5, times=62, every=5.0, lag=100)[-1] == 5


# -- Koper'22: Dhalion and DS2 -----------------------------------------------------------------------------------------


def test_dhalion_needs_age_and_growth() -> None:
    """The thesis' example: 200/s come, 100/s are done: twice as many (here with 20 % on top: 2 x 2 x 1.2 = 4.8: 5)."""
    assert counts("dhalion_adapted", 200.0, 2, done=100.0, slope=100.0, lag=900, lag_seconds=5.1) == [5]
    assert counts("dhalion_adapted", 500.0, 2, done=300.0, slope=200.0, lag=900, lag_seconds=4.9) == [2]
    assert counts("dhalion_adapted", 900.0, 2, done=400.0, slope=-10.0, lag=900, lag_seconds=9.0) == [2]


def test_dhalion_goes_down_when_idle_and_caught_up() -> None:
    """3 x 0.8 = 2.4: 2. Busy for 65 %: not. As run by lag: fewer than 0.2 x 100 = 20 records in a partition."""
    assert counts("dhalion_adapted", 100.0, 3) == [2]
    assert counts("dhalion_adapted", 390.0, 3) == [3]
    assert counts("dhalion_adapted:down_lag_share=0.2", 100.0, 3, lag=200) == [3]
    assert counts("dhalion_adapted:down_lag_share=0.2", 100.0, 3, lag=190) == [2]
    assert counts("dhalion_adapted", 100.0, 3, memory={"scaled_at": T - 100.0}) == [3]


def test_of_each_member_dhalion_looks_at_the_fullest_partition_as_run() -> None:
    """m0 has 30 and 30 of 102 records, m1 30 and 12: (30 + 30) / 2 = 30, not below 0.2 x 100. With 4 it is 17."""
    choice = "dhalion_adapted:down_lag_share=0.2,down_share=0.5"
    assert counts(choice, 100.0, 2, lag=102, shares=(30.0, 30.0, 30.0, 12.0)) == [2]
    assert counts(choice, 100.0, 2, lag=64, shares=(30.0, 4.0, 26.0, 4.0)) == [1]


@pytest.mark.parametrize("name", ["dhalion_adapted", "ds2_modern"])
def test_a_cooldown_of_the_thesis_may_count_from_when_replicas_came(name: str) -> None:
    """As run: asked for 250 s ago, there for 110 s; 120 s and 240 s are waited for from then on."""
    memory = {"scaled_at": T - 250.0, "members": 3.0, "changed_at": T - 110.0}
    choice = f"{name}:cooldown_from_change=1"
    assert counts(name, 100.0, 3, memory=memory) == [2]
    assert counts(choice, 100.0, 3, memory=memory) == [3]
    assert counts(choice, 100.0, 3, memory=memory | {"changed_at": T - 250.0}) == [2]
    # The change is noticed by this look.
    assert counts(choice, 100.0, 3, memory=memory | {"members": 4.0, "changed_at": T - 250.0}) == [3]


def test_ds2_and_its_thresholds() -> None:
    """0 %: 900 / 200 = 4.5: 5. 66 %: 5 x 1.66 = 8.3: 9. Adapted: not up with 5 s of lag, not down with 1 s."""
    assert counts("ds2_modern:overprovisioning=0", 900.0, 2) == [5]
    assert counts("ds2_modern:overprovisioning=0.66", 900.0, 2) == [9]
    assert counts("ds2_modern", 900.0, 2, memory={"scaled_at": T - 200.0}) == [2]
    up = decide("ds2_modern_adapted", 900.0, 2, lag_seconds=5.0)[0]
    assert (up.replicas, up.reason, up.rejected[0].replicas) == (2, "patience", 7)
    assert counts("ds2_modern_adapted", 100.0, 5, lag_seconds=1.0) == [5]
    assert counts("ds2_modern_adapted", 100.0, 5, lag_seconds=0.9) == [2]


def test_flas_counts_looks_in_a_row() -> None:
    assert counts("flas:up_notes=3", 900.0, 2, times=3, latency=0.51) == [2, 2, 3]
    assert counts("flas", 900.0, 2, times=9, latency=0.5) == [2] * 9
    first = decide("flas", 900.0, 2, latency=0.6)[0]
    assert memory_of(first)["above"] == 1.0
    between = decide("flas", 900.0, 2, latency=0.3, memory=memory_of(first))[0]
    assert "above" not in memory_of(between)
    # After a step nothing for 10 s, then two looks again.
    assert counts("flas", 900.0, 3, times=13, latency=0.6, memory={"scaled_at": T}) == [3] * 11 + [4, 4]

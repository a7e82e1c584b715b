"""When the reconciler sends, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from loadtrim_agent.leader.scaling.none import NoneScaler
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, Scaler, ScaleRequest
from loadtrim_agent.leader.scaling.reconciler import Cadence, ScaleReconciler
from loadtrim_agent.leader.scaling.unmet import EXECUTE_SECONDS
from unit.leader.scaling.fake import FakeScaler

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]

PODS = tuple(f"payments-{index}" for index in range(5))
FAILED, REFUSED, ACCEPTED = Answer.FAILED, Answer.REFUSED, Answer.ACCEPTED


def wish(replicas: int, *victims: str, sequence: int = 1, reason: str = "More load.") -> ScaleRequest:
    return ScaleRequest(
        group="payments", replicas=replicas, victims=victims, generation=7, sequence=sequence, reason=reason
    )


class Bench:
    """A running reconciler over a fake."""

    def __init__(self, scaler: Scaler) -> None:
        self.counted: list[str] = []
        self.errors: list[str] = []
        self.reconciler = ScaleReconciler(scaler, observer=self)

    def scaled(self, request: ScaleRequest, outcome: ScaleOutcome) -> None:
        self.counted.append(f"{request.replicas} {outcome.answer}")

    def error(self, where: str) -> None:
        self.errors.append(where)


@asynccontextmanager
async def running(scaler: Scaler) -> AsyncIterator[Bench]:
    bench = Bench(scaler)
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.reconciler.run())
        yield bench
        await bench.reconciler.close()


async def test_replicas_that_stand_are_told_until_another_number_is_wanted_or_they_do_not_stand() -> None:
    fake = FakeScaler()
    stands = ScaleOutcome(REFUSED, "left at 6", stands=6)
    fake.answers.extend([stands, stands])
    async with running(fake) as bench:
        assert bench.reconciler.standing is None
        bench.reconciler.want(wish(4, *PODS[:2]))
        await asyncio.sleep(0.1)
        assert bench.reconciler.standing == 6
        bench.reconciler.want(structs.replace(wish(5, PODS[0]), settled=4))
        assert bench.reconciler.standing == 6, "one drains again, and as many are wanted in the end"
        await asyncio.sleep(0.1)
        bench.reconciler.want(wish(3))
        assert bench.reconciler.standing is None
        bench.reconciler.want(wish(4))
        await asyncio.sleep(0.1)
        assert bench.reconciler.standing is None, "it was accepted"


# What is due when


async def test_a_wish_is_sent_at_once_and_not_again_once_the_group_is_so() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        await asyncio.sleep(5)
        bench.reconciler.want(wish(4))
        await asyncio.sleep(2)
        bench.reconciler.observed(4, ["a", "b", "c", "d"])
        await asyncio.sleep(1000)
    assert fake.asked_at == [5.0]
    assert bench.counted == ["4 accepted"]


async def test_it_is_repeated_every_ten_seconds_while_the_group_differs() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(4))
        await asyncio.sleep(35)
        bench.reconciler.observed(4, ["a", "b", "c", "d"])
        await asyncio.sleep(100)
        bench.reconciler.observed(3, ["a", "b", "c"])  # one died
        await asyncio.sleep(15)
    assert fake.asked_at == [0.0, 10.0, 20.0, 30.0, 135.0, 145.0]


async def test_a_group_not_seen_yet_differs() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(15)
    assert fake.asked_at == [0.0, 10.0]


async def test_a_victim_that_is_still_there_differs() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(2, ["a", "b"])
        bench.reconciler.want(wish(2, "a"))
        await asyncio.sleep(15)
        bench.reconciler.observed(2, ["b", "c"])
        await asyncio.sleep(100)
    assert fake.asked_at == [0.0, 10.0]


async def test_a_new_plan_with_the_same_wish_is_not_sent_but_the_next_repeat_carries_it() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        for sequence in range(8):
            bench.reconciler.want(wish(4, sequence=sequence))
            await asyncio.sleep(1.5)
    assert fake.asked_at == [0.0, 10.0]
    assert [request.sequence for request in fake.requests] == [0, 6]


async def test_a_changed_wish_is_sent_at_once() -> None:
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        for replicas in (4, 5, 4):
            bench.reconciler.want(wish(replicas))
            await asyncio.sleep(1)
    assert fake.asked_at == [0.0, 1.0, 2.0]
    assert bench.counted == ["4 accepted", "5 accepted", "4 accepted"]


async def test_back_off_doubles_up_to_ten_seconds_and_starts_anew_after_a_success() -> None:
    fake = FakeScaler()
    fake.answer_next(*[FAILED] * 8, ACCEPTED, FAILED, FAILED)
    async with running(fake) as bench:
        bench.reconciler.observed(3, [])
        bench.reconciler.want(wish(4))
        await asyncio.sleep(46)
        assert fake.asked_at == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5]
        bench.reconciler.want(wish(5))
        await asyncio.sleep(1.6)
    assert fake.asked_at[9:] == [46.0, 46.5, 47.5]


async def test_a_scaler_that_asks_for_time_is_given_it() -> None:
    """``Retry-After`` of an API server that is busy."""
    fake = FakeScaler()
    fake.answer_next(ScaleOutcome(FAILED, "429", retry_after_seconds=25.0), FAILED)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(27)
        bench.reconciler.observed(4, ["a", "b", "c", "d"])
        await asyncio.sleep(5)
    assert fake.asked_at == [0.0, 25.0, 26.0]


async def test_a_slow_failing_scaler_is_still_asked_every_ten_seconds() -> None:
    fake = FakeScaler(seconds=5.0)
    fake.answer_next(*[FAILED] * 100)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(100)
    gaps = [after - before for before, after in zip(fake.asked_at, fake.asked_at[1:], strict=False)]
    assert gaps[:3] == [5.5, 6.0, 7.0]
    assert set(gaps[4:]) == {10.0}


async def test_refusals_are_tried_again_too() -> None:
    fake = FakeScaler()
    fake.answer_next(REFUSED, REFUSED)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(2)
    assert bench.counted == ["4 refused", "4 refused", "4 accepted"]


async def test_a_wish_that_was_never_accepted_is_sent_although_the_group_is_so() -> None:
    """The other side still holds the older wish, and would act on it."""
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(1)
        fake.answer_next(FAILED)
        bench.reconciler.want(wish(2, "c"))
        bench.reconciler.observed(2, ["a", "b"])  # c died before anybody was told
        await asyncio.sleep(100)
    assert fake.state is not None
    assert fake.state.replicas == 2
    assert fake.asked_at == [0.0, 1.0, 1.5]


async def test_what_others_may_change_is_asked_for_again_although_the_group_is_so() -> None:
    fake = FakeScaler()
    fake.answers.extend([ScaleOutcome(ACCEPTED, changeable=True)] * 2)
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(200)
    assert fake.asked_at == [0.0, 60.0, 120.0]


async def test_a_look_that_saw_nothing_leaves_the_wish_delivered(caplog: pytest.LogCaptureFixture) -> None:
    """The API server is away for one read, and nothing is open."""
    caplog.set_level(logging.INFO, "loadtrim.scaling")
    fake = FakeScaler()
    accepted = ScaleOutcome(ACCEPTED, "as wanted", changeable=True)
    fake.answer_next(accepted, ScaleOutcome(FAILED, "503", unseen=True), accepted)
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(60.1)
        view = bench.reconciler.view()
        assert (view.delivered, view.detail, view.failures) == (True, "as wanted", 0)
        assert await bench.reconciler.delivered(0.0)
        await asyncio.sleep(60)
    assert fake.asked_at == [0.0, 60.0, 120.0]
    assert bench.counted == ["3 accepted", "3 failed", "3 accepted"]
    assert [record.levelname for record in caplog.records] == ["INFO"], "the wish, once"


@pytest.mark.parametrize(
    "answer", [ScaleOutcome(REFUSED, "403", unseen=True), ScaleOutcome(FAILED, "stays at 5: a rollout is under way")]
)
async def test_a_look_that_is_refused_or_saw_another_number_opens_the_wish(answer: ScaleOutcome) -> None:
    fake = FakeScaler()
    fake.answer_next(ScaleOutcome(ACCEPTED, changeable=True), answer)
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(60.1)
        assert not bench.reconciler.view().delivered
        await asyncio.sleep(1)
    assert fake.asked_at == [0.0, 60.0, 60.5]


async def test_an_answer_that_saw_nothing_opens_the_wish_while_the_group_differs() -> None:
    fake = FakeScaler()
    fake.answer_next(ScaleOutcome(ACCEPTED, changeable=True), ScaleOutcome(FAILED, "503", unseen=True))
    async with running(fake) as bench:
        bench.reconciler.observed(2, ["a", "b"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(10.1)
        assert not bench.reconciler.view().delivered


async def test_a_change_while_failing_is_sent_at_once_and_the_back_off_goes_on() -> None:
    fake = FakeScaler()
    fake.answer_next(*[FAILED] * 100)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(4)
        bench.reconciler.want(wish(5))
        await asyncio.sleep(8.5)
    assert fake.asked_at == [0.0, 0.5, 1.5, 3.5, 4.0, 12.0]


# One at a time


async def test_one_request_in_flight_and_the_latest_wish_wins() -> None:
    fake = FakeScaler(seconds=3.0)
    async with running(fake) as bench:
        bench.reconciler.observed(1, ["a"])
        bench.reconciler.want(wish(2))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(3))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(4))
        await asyncio.sleep(5)
    assert fake.in_flight_max == 1
    assert [(request.replicas, at) for request, at in zip(fake.requests, fake.asked_at, strict=True)] == [
        (2, 0.0),
        (4, 3.0),
    ]


async def test_a_newer_wish_breaks_off_a_request_that_may_be_withdrawn() -> None:
    fake = FakeScaler(seconds=3.0)
    fake.withdrawable = True
    async with running(fake) as bench:
        bench.reconciler.want(wish(2))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(3))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(3, sequence=2))
        await asyncio.sleep(4)
    assert fake.in_flight_max == 1
    assert [(request.replicas, at) for request, at in zip(fake.requests, fake.asked_at, strict=True)] == [
        (2, 0.0),
        (3, 1.0),
    ]
    assert bench.counted == ["3 accepted"], "what was withdrawn has no answer, and is no failure"


async def test_a_wish_that_stood_before_the_withdrawn_one_is_sent_again() -> None:
    """The other side may have got the withdrawn one, although the group is still as it was."""
    fake = FakeScaler()
    fake.withdrawable = True
    async with running(fake) as bench:
        bench.reconciler.observed(3, ["a", "b", "c"])
        bench.reconciler.want(wish(3))
        await asyncio.sleep(1)
        fake.seconds = 3.0
        bench.reconciler.want(wish(2, "c"))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(3))
        await asyncio.sleep(4)
    assert [request.replicas for request in fake.requests] == [3, 2, 3]


async def test_a_wish_taken_back_in_flight_is_sent_again() -> None:
    """2, then 3 and back to 2 while 2 is under way: nothing else has to be said."""
    fake = FakeScaler(seconds=3.0)
    async with running(fake) as bench:
        bench.reconciler.observed(2, ["a", "b"])
        bench.reconciler.want(wish(2))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(3))
        bench.reconciler.want(wish(2))
        await asyncio.sleep(20)
    assert [request.replicas for request in fake.requests] == [2]


async def test_who_leads_no_longer_breaks_off_and_says_no_more() -> None:
    fake = FakeScaler(seconds=3.0)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(1)
        bench.reconciler.want(None)
        await asyncio.sleep(100)
        assert fake.state is None
        assert bench.counted == []
        bench.reconciler.observed(4, ["a", "b", "c", "d"])
        bench.reconciler.want(wish(4))  # leads again: says it once more, whatever was said before
        await asyncio.sleep(5)
    assert fake.asked_at == [0.0, 101.0]


async def test_who_leads_again_says_it_again() -> None:
    """Another leader may have said something else in between."""
    fake = FakeScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(4, [])
        bench.reconciler.want(wish(4))
        await asyncio.sleep(1)
        bench.reconciler.want(None)
        bench.reconciler.want(wish(4))
        await asyncio.sleep(100)
    assert fake.asked_at == [0.0, 1.0]


async def test_an_answer_in_the_moment_in_which_the_lead_is_lost_counts_for_no_later_wish() -> None:
    class Losing(FakeScaler):
        async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
            outcome = await super().request(wanted)
            if len(self.requests) == 1:
                bench.reconciler.want(None)
            return outcome

    fake = Losing()
    async with running(fake) as bench:
        bench.reconciler.observed(4, [])
        bench.reconciler.want(wish(4))
        await asyncio.sleep(1)
        bench.reconciler.want(wish(4))
        await asyncio.sleep(100)
    assert fake.asked_at == [0.0, 1.0]


async def test_close_ends_the_loop_and_the_request_under_way() -> None:
    fake = FakeScaler(seconds=60.0)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(1)
        await bench.reconciler.close()
        bench.reconciler.want(wish(5))
    assert fake.closed
    assert len(fake.requests) == 1
    assert asyncio.get_running_loop().time() == 1.0


async def test_with_nobody_to_ask_nothing_is_asked() -> None:
    async with running(NoneScaler()) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(100)
        assert await bench.reconciler.delivered(1.0)
    assert bench.counted == []


# Delivered


async def test_delivered_waits_for_the_last_wish() -> None:
    fake = FakeScaler(seconds=0.2)
    fake.answer_next(FAILED)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        assert await bench.reconciler.delivered(10.0)
        assert asyncio.get_running_loop().time() == pytest.approx(0.9)
        assert await bench.reconciler.delivered(0.0), "it was already"


async def test_delivered_gives_up_in_time() -> None:
    fake = FakeScaler()
    fake.answer_next(*[FAILED] * 100)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        assert not await bench.reconciler.delivered(3.0)
        assert asyncio.get_running_loop().time() == 3.0


@pytest.mark.parametrize("end", ["close", "want none"])
async def test_delivered_ends_with_the_reconciler_and_with_the_wish(end: str) -> None:
    fake = FakeScaler(seconds=60.0)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        waiting = asyncio.create_task(bench.reconciler.delivered(50.0))
        await asyncio.sleep(1)
        if end == "close":
            await bench.reconciler.close()
        else:
            bench.reconciler.want(None)
        assert await waiting is (end == "want none")
        assert asyncio.get_running_loop().time() == 1.0


# What breaks


class RaisingScaler(FakeScaler):
    """Breaks its promise."""

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        if len(self.asked_at) < 2:
            self.asked_at.append(asyncio.get_running_loop().time())
            raise KeyError("oops")
        return await super().request(wanted)


async def test_a_scaler_that_raises_is_a_failure_and_counted() -> None:
    fake = RaisingScaler()
    async with running(fake) as bench:
        bench.reconciler.observed(4, [])
        bench.reconciler.want(wish(4))
        await asyncio.sleep(20)
    assert fake.asked_at == [0.0, 0.5, 1.5]
    assert bench.counted == ["4 failed", "4 failed", "4 accepted"]
    assert bench.errors == ["scaler", "scaler"]


async def test_a_scaler_that_never_answers_is_bounded() -> None:
    fake = FakeScaler(seconds=10_000.0)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(31)
    assert fake.asked_at == [0.0, 30.0]
    assert bench.counted == ["4 failed"]


async def test_a_counter_that_raises_does_not_stop_it() -> None:
    fake = FakeScaler()
    errors: list[str] = []

    class Broken:
        def scaled(self, request: ScaleRequest, outcome: ScaleOutcome) -> None:
            raise ZeroDivisionError

        def error(self, where: str) -> None:
            errors.append(where)

    reconciler = ScaleReconciler(fake, observer=Broken())
    async with asyncio.TaskGroup() as group:
        group.create_task(reconciler.run())
        reconciler.want(wish(4))
        await asyncio.sleep(15)
        await reconciler.close()
    assert fake.asked_at == [0.0, 10.0]
    assert errors == ["scaler", "scaler"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cadence(first_seconds=0),
        lambda: Cadence(first_seconds=2, every_seconds=1),
        lambda: Cadence(request_seconds_max=0),
    ],
)
async def test_an_unusable_cadence(make: Callable[[], Cadence]) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        make()


async def test_a_wish_that_counts_in_its_generation_is_sent_in_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the group is so; and it is no news."""
    caplog.set_level(logging.INFO, "loadtrim.scaling")
    for per_generation, times in ((True, [0.0, 5.0]), (False, [0.0])):
        fake = FakeScaler()
        fake.per_generation = per_generation
        begin = asyncio.get_running_loop().time()
        caplog.clear()
        async with running(fake) as bench:
            bench.reconciler.observed(3, [])
            bench.reconciler.want(wish(3))
            await asyncio.sleep(5)
            bench.reconciler.want(structs.replace(wish(3), generation=8))
            await asyncio.sleep(100)
        assert [at - begin for at in fake.asked_at] == times
        assert len(caplog.records) == 1


# What is told


async def test_the_first_failure_and_the_recovery_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "loadtrim.scaling")
    fake = FakeScaler()
    fake.answer_next(*[FAILED] * 5, REFUSED, FAILED, REFUSED)
    async with running(fake) as bench:
        bench.reconciler.observed(3, [])
        bench.reconciler.want(wish(4, "pod-b"))
        await asyncio.sleep(100)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "WARNING", "INFO", "INFO"]
    assert "as told: failed" in told[0][1]
    assert "as told: refused" in told[1][1], "another kind of failure is news"
    assert told[2][1].startswith("fake accepts again, after 8 failures in 45.5 s")
    assert told[3][1] == "asked fake for 4 replicas, without pod-b: More load."


@pytest.mark.parametrize("name", ["webhook", "kubernetes"])
async def test_only_a_webhook_has_settings_to_look_at(name: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeScaler()
    fake.name = name
    fake.answer_next(FAILED)
    async with running(fake) as bench:
        bench.reconciler.want(wish(4))
        await asyncio.sleep(0.1)
    assert ("LOADTRIM_SCALER_URL and LOADTRIM_SCALER_TOKEN" in caplog.text) is (name == "webhook")


async def test_the_view_tells_of_the_present_wish_only() -> None:
    fake = FakeScaler()
    fake.answer_next(ACCEPTED, FAILED)
    async with running(fake) as bench:
        view = bench.reconciler.view()
        assert (view.scaler, view.wanted, view.delivered, view.answer) == ("fake", None, False, None)
        bench.reconciler.want(wish(4))
        await asyncio.sleep(1)
        assert bench.reconciler.view().delivered
        bench.reconciler.want(wish(5))
        assert (bench.reconciler.view().delivered, bench.reconciler.view().answer) == (False, None)
        await asyncio.sleep(0.1)
        view = bench.reconciler.view()
        assert (view.delivered, view.answer, view.detail, view.failures) == (False, "failed", "as told: failed", 1)


# Nobody makes it so


async def test_a_number_that_was_taken_and_nobody_makes_so_is_complained_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Eight were asked for, a quota let five start: the log had one line, of the request."""
    caplog.set_level(logging.WARNING, "loadtrim.scaling")
    async with running(FakeScaler()) as bench:
        bench.reconciler.observed(5, PODS)
        bench.reconciler.want(wish(8))
        await asyncio.sleep(EXECUTE_SECONDS - 1.0)
        assert not caplog.records
        await asyncio.sleep(1000.0)
        (record,) = caplog.records
        assert "took the request for 8 replicas 120 s ago, and the group has 5" in record.getMessage()
        bench.reconciler.want(wish(7))
        await asyncio.sleep(EXECUTE_SECONDS + 11.0)
        assert len(caplog.records) == 2, "another number"


async def test_a_number_that_was_met_meanwhile_is_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "loadtrim.scaling")
    async with running(FakeScaler()) as bench:
        bench.reconciler.want(wish(6))
        for pods in (PODS, (*PODS, "payments-5"), PODS):
            bench.reconciler.observed(len(pods), pods)
            await asyncio.sleep(EXECUTE_SECONDS - 11.0)
        assert not caplog.records
        await asyncio.sleep(31.0)
        assert "the group has 5" in caplog.text


async def test_a_rollouts_surplus_is_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "loadtrim.scaling")
    async with running(FakeScaler()) as bench:
        bench.reconciler.observed(5, PODS)
        bench.reconciler.want(structs.replace(wish(3), rollout=True))
        await asyncio.sleep(3 * EXECUTE_SECONDS)
    assert not caplog.records


async def test_names_of_instances_make_no_second_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """They come from records of other members."""
    caplog.set_level(logging.INFO, "loadtrim.scaling")
    reconciler = ScaleReconciler(FakeScaler())
    task = asyncio.create_task(reconciler.run())
    evil = "pay-1\n2026 CRITICAL loadtrim forged\x1b[2J"
    reconciler.want(
        ScaleRequest(group="g", replicas=2, victims=(evil,), staying=(), generation=1, sequence=1, reason=evil)
    )
    assert await reconciler.delivered(5.0)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().isprintable()
    await reconciler.close()
    await task


async def test_what_is_withdrawn_is_withdrawn_from_the_scaler_too() -> None:
    scaler = FakeScaler()
    reconciler = ScaleReconciler(scaler)
    reconciler.want(None)
    assert scaler.withdrawn == 1
    await reconciler.close()

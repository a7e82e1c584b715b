from __future__ import annotations

import pytest

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.naming import UnknownNameError, parse_choice
from loadtrim_agent.planning.parameters import ParameterError, described
from loadtrim_agent.planning.registry import PACKERS, POLICIES, make_packer, make_planner, make_policy
from loadtrim_agent.planning.sizing.policy import Measure
from loadtrim_agent.planning.values import PlanConfig


def test_every_registered_name_makes_what_bears_it() -> None:
    everything = frozenset(Measure)
    assert {name: make_policy(name, everything).name for name in POLICIES} == {name: name for name in POLICIES}
    assert {name: make_packer(name).name for name in PACKERS} == {name: name for name in PACKERS}


def test_an_unknown_name_is_refused_with_all_names_and_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="closer24, .*objective.*nearest is 'objective'") as caught:
        make_policy("objectiv")
    assert isinstance(caught.value, LoadtrimError)
    with pytest.raises(UnknownNameError, match="nearest is 'least_loaded'"):
        make_packer("least-loaded")


def test_parameters_follow_the_name() -> None:
    assert parse_choice("closer24:mu=200, f_up=0.8") == ("closer24", {"mu": 200.0, "f_up": 0.8})
    assert parse_choice("trim") == ("trim", {})


def test_what_is_no_number_is_named() -> None:
    """The whole of it was called no parameter, whatever of it was wrong."""
    with pytest.raises(UnknownNameError, match="'abc' is no number for replicas in 'fixed:replicas=abc'"):
        parse_choice("fixed:replicas=abc")


@pytest.mark.parametrize("text", ["closer24:", "closer24:mu", "closer24:mu=fast", "closer24:=1", "closer24:mu=nan"])
def test_what_is_no_parameter_is_refused(text: str) -> None:
    with pytest.raises(UnknownNameError, match="write it like closer24:parameter=1.5"):
        make_policy(text)


def test_a_parameter_that_is_there_twice_is_refused() -> None:
    """The last one won."""
    with pytest.raises(UnknownNameError, match="mu is there twice in 'closer24:mu=1,mu=2'"):
        make_policy("closer24:mu=1,mu=2")


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="nearest is 'f_down'"):
        make_policy("closer24:down=0.5")
    with pytest.raises(UnknownNameError, match="it takes none"):
        make_packer("sticky:fill=1")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("iccbdc22:mu=-5", "mu of the packer 'iccbdc22' is -5, so nothing can be packed; allowed is a number above 0"),
        ("iccbdc22:mu=0", "a number above 0"),
        ("iccbdc22_as_run:mu=-1", "a number above 0"),
        ("closer24:mu=-1", "a number above 0"),
        ("closer24_as_run:mu=0", "a number above 0"),
        ("least_loaded:mu=1e13", r"a number above 0 and of at most 1e\+12"),
        ("kd_n:n=-3", "n of the packer 'kd_n' is -3.*a whole number of at least 1 and of at most 100000"),
        ("kd_n:n=0", "a whole number"),
        ("kd_n:n=2.5", "a whole number"),
        ("kd_n:n=1e9", "a whole number"),
        ("trim:spread=-1", "spread of the packer 'trim' is -1.*0 or 1"),
        ("trim:spread=2", "0 or 1"),
        ("trim:spread=0.5", "0 or 1"),
    ],
)
def test_a_packers_parameter_out_of_its_range_is_refused(choice: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make_packer(choice)
    with pytest.raises(ParameterError, match=said):
        make_planner(PlanConfig(packer=choice))


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_every_parameter_of_a_packer_has_a_meaning_a_range_and_a_default(name: str) -> None:
    for one in described(make_packer(name).kind):
        assert one.meaning, one
        assert one.default or "default:" in one.meaning, one
        assert one.allowed, one


def test_a_planner_with_an_unknown_policy_does_not_start() -> None:
    with pytest.raises(UnknownNameError):
        make_planner(PlanConfig(policy="best"))


def test_an_unknown_monitor_is_refused_with_all_names_and_the_nearest() -> None:
    """The group then held: nobody told what arrived."""
    with pytest.raises(UnknownNameError, match="iccbdc22, landau24, reports .the nearest is 'landau24'"):
        make_planner(PlanConfig(monitor="landau"))

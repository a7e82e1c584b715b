"""A group under load in virtual time: what would this policy have done?

Record by record, with the planner that runs in the agent and the meters that run in every member::

    from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate

    load = parse_generator("step:before=50,after=300,at=60,seconds=180", partitions=9)
    outcome = simulate(load, PlanConfig(sla_seconds=0.5), Options(costs=Costs(mean_seconds=0.005)))
    print(outcome.share_in_time, outcome.replica_minutes)

``loadtrim simulate`` is the same on the command line; docs/simulator.md says what is modelled and what is not.
"""

from __future__ import annotations

from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.baseline_records import BaselineRecord

from .loads.baselines import parse_moment, read_baselines
from .loads.generators import parse_generator
from .loads.load import Load, LoadFileError, WrongLoadError, shares_even, shares_skewed
from .model.outcome import Curves, Outcome, Summary, percentile, summary_of
from .model.protocols import PROTOCOLS, Protocol, protocol_of
from .model.simulation import Options, Simulation, simulate
from .model.work import Costs, Machines, parse_costs

__all__ = [
    "PROTOCOLS",
    "BaselineRecord",
    "Costs",
    "Curves",
    "Load",
    "LoadFileError",
    "Machines",
    "Options",
    "Outcome",
    "PlanConfig",
    "Protocol",
    "Simulation",
    "Summary",
    "WrongLoadError",
    "parse_costs",
    "parse_generator",
    "parse_moment",
    "percentile",
    "protocol_of",
    "read_baselines",
    "shares_even",
    "shares_skewed",
    "simulate",
    "summary_of",
]

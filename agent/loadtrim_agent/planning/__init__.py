"""How many, where, when: from what the members measure to what the leader decides.

* member side: :mod:`~loadtrim_agent.metering.meter` (the door) with :mod:`~loadtrim_agent.metering.partition_meter`,
  :mod:`~loadtrim_agent.metering.arrivals`, :mod:`~loadtrim_agent.metering.windows`,
  :mod:`~loadtrim_agent.metering.lateness`, :mod:`~loadtrim_agent.metering.cost` and
  :mod:`~loadtrim_agent.metering.broker_clock`; what it says travels as ``report`` and ``load`` records
* leader side: :mod:`.observation` and the stages after it, each with one value type of :mod:`.values`

Nothing here can make two members own a partition: plans are advice to owners.
"""

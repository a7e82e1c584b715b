"""How many, where, when: from what the members measure to what the leader decides.

* member side: :mod:`.measure` (the door) with :mod:`.partition_meter`, :mod:`.arrivals`, :mod:`.windows`,
  :mod:`.lateness`, :mod:`.cost` and :mod:`.clock`; what it says travels as ``report`` and ``load`` records
* leader side: :mod:`.observe` and the stages after it, each with one value type of :mod:`.values`

Nothing here can make two members own a partition: plans are advice to owners.
"""

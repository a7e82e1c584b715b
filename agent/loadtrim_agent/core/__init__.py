"""The pure core: no I/O, no clock, no randomness, no threads. Time, ids and answers come in as events.

* :mod:`.model`    the few value types that everything speaks in
* :mod:`.records`  what is written to the control topic (and its codec)
* :mod:`.group`    who owns what: membership, ownership, leases, commits. Safety lives here.
* :mod:`.plan`     how many, where, when: measure, estimate, forecast, decide, place. Economy lives here; nothing in
  it can make two members own a partition, because plans are advice to owners.
"""

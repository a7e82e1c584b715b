"""A whole consumer group in memory: broker, control log, members and their user code, in virtual time, from one seed.

What is real: :class:`loadtrim_agent.protocol.machine.Machine`, one per member. What is a model of it: everything that
the machine talks to, as ``docs/protocol.md`` and the measurements say that Kafka behaves.

* :mod:`.options`      how much load, which faults, how often: frozen values with units in their names
* :mod:`.scheduler`    virtual time and one seeded source of randomness; nothing else decides about order
* :mod:`.network`      connections that delay, break, swallow and repeat
* :mod:`.coordinator`  Kafka's classic group coordinator with its offsets
* :mod:`.controllog`   the coordination log
* :mod:`.data`         the data partitions, and the ledger of what was handed out and done
* :mod:`.member`       one member: the machine in a shell; :mod:`.user`: its user code
* :mod:`.foreign`      a member without the agent
* :mod:`.invariants`   I1 to I6, one small class each, looked at after every step
* :mod:`.world`        all of it together, and the levers that scripts and :mod:`.chaos` pull
* :mod:`.chaos`        faults at random, then healing, then the checks that only hold at the end
* :mod:`.script`       schedules by hand; :mod:`.driver`: one machine by hand
* :mod:`.fleet`        planning instead of protocol: a group under load, record by record

``python -m sim SEED`` (with ``PYTHONPATH=agent:tests``) replays one seed and prints what happened.
"""

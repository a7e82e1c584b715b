"""The group and ownership protocol, which decides the owner of each partition, as one deterministic state machine.

Theory of operation
===================

A member speaks Kafka's classic group protocol and, beside it, reads one totally ordered log that all members share
(partition 0 of the control topic). Two sources say who owns a partition, and nothing else does:

* the *assignment*: at the start of a generation the elected leader gives the owner of every partition, version 0. It
  is made from what the members own by their JoinGroups, so that a rebalance moves nothing that somebody holds;
* the *log*: within a generation one kind of record, ``release``, moves one partition from its owner to another
  member. It counts if the generation is the reader's and (owner, version) are what the log says so far.

Every member folds the same records in the same order, so all agree; a member that stopped handing a partition out and
committed what was done appends the release, and whoever reads it as its target starts. Generations fence the commits
at the broker and leases fence the handing out at the member, so that a frozen or cut-off member harms nobody.

Modules
=======

* :mod:`.events`      what can happen; :mod:`.commands`: what is to be done. Frozen values, nothing else crosses.
* :mod:`.machine`     the one door: ``Machine.handle(event) -> list[Command]``
* :mod:`.membership`  the door to JoinGroup, SyncGroup and heartbeats; :mod:`.membership_table`: its phases as a table;
  :mod:`.membership_effects` carries them out, :mod:`.membership_answers` reads what the coordinator answers
* :mod:`.session`     heartbeats, the lease, and notices on the log that a generation ends
* :mod:`.assignment`  the leader's assignment (pure function)
* :mod:`.ownership`   the fold of the log
* :mod:`.partitions`  what this member holds, takes and gives; :mod:`.assigned_partition`: the states as a table
* :mod:`.snapshot`    what the other rooms may know: ``Machine.snapshot()``
* :mod:`.counters`    what is counted
* :mod:`.commits`     the queue of commits
* :mod:`.lease`       until when a record may be handed out

The numbers of the rules in comments (``rule 5``) are those of ``docs/protocol.md``.
"""

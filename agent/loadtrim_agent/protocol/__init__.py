"""Who owns what: the group and ownership protocol as one deterministic state machine.

Theory of operation
===================

A member speaks Kafka's classic group protocol and, beside it, reads one totally ordered log that all members share
(partition 0 of the control topic). Two sources say who owns a partition, and nothing else does:

* the *map*: at the start of a generation the elected leader gives the owner of every partition, version 0. It is made
  from what the members claim in their JoinGroup, so that a barrier moves nothing that somebody holds;
* the *log*: within a generation one kind of record, ``release``, moves one partition from its owner to another
  member. It counts if the generation is the reader's and (owner, version) are what the log says so far.

Every member folds the same records in the same order, so all agree; a member that stopped handing a partition out and
committed what was done appends the release, and whoever reads it as its target starts. Generations fence the commits
at the broker and leases fence the handing out at the member, so that a frozen or cut-off member harms nobody.

Modules
=======

* :mod:`.events`      what can happen; :mod:`.commands`: what is to be done. Frozen values, nothing else crosses.
* :mod:`.machine`     the one door: ``Machine.handle(event) -> list[Command]``
* :mod:`.membership`  JoinGroup, SyncGroup, heartbeats, coordinator
* :mod:`.assignment`  the leader's map (pure function)
* :mod:`.ownership`   the fold of the log, and the states of one held partition
* :mod:`.partitions`    what this member holds, takes and gives
* :mod:`.commits`     the queue of commits
* :mod:`.lease`       until when a record may be handed out

The numbers of the rules in comments (``rule 5``) are those of ``docs/protocol.md``.
"""

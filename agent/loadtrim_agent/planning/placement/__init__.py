"""Which member owns which partition: the port :class:`.problem.Packer` and the packers ``trim`` and ``sticky``."""

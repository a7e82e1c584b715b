"""Every policy against every load in the simulator, and the targets of `objective`; out/comparison is made here."""

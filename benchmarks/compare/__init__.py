"""Every policy against every load in the simulator, and the targets of `objective`; docs/comparison.md is made here."""

"""How a run stands."""

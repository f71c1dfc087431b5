"""The resolved configuration of a run, and the formulas that it names."""

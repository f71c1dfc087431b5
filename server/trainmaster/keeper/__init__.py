"""The keeper: `trainmaster tick` on a timer, for what is due while nobody looks."""

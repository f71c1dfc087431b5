"""The keeper: `trainmaster tick` on a timer, for unattended runs and rentals."""

"""Ending by the clock: the lease's timer and an attempt's deadlines."""

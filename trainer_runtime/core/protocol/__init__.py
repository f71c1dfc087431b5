"""Journal, events, states: what both sides read and write."""

"""Renting boxes and giving them back: offers, quotes, leases, what was spent, and what was lost."""

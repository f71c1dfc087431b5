"""Keeps runs going: due steps, deliveries, supervisors and further hosts."""

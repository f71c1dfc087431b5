"""Renting: offers, quotes, instances and their leases, from the first request to the release."""

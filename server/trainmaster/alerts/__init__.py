"""Alerts on the client: their rules, their evaluation here, and their delivery.

The host sends the messages of its own alerts (`trainer_runtime/host/alerts/outbox.py`). The client
sends those that only it can detect, those whose destination says so, and those the host gave up.
"""

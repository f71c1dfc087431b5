"""Alerts: conditions on a run, the messages that they produce, and the delivery of each message.

Pure and shared: the host evaluates what its own files show, the client what only it can observe,
and both use this code. See docs/alerts.md.
"""

"""Alerts: conditions on a run, the messages that they become, and what became of each message.

Pure and shared: the box tells what its own files say, the operator's side what only it can see, and
both by this code. See docs/alerts.md.
"""

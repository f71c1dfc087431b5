"""Alerts on the operator's side: which there are, what is watched from here, and what is sent.

Messages of the box's own alerts are sent there (`trainer_runtime/box/alerts/outbox.py`); this side
sends those that only it can see, those whose destination says so, and what the box gave up.
"""

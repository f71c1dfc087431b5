"""Attaches to running trainings: watches them, never changes them."""

from __future__ import annotations

from trainmaster.runs.attach.attach import AttachOptions, attach
from trainmaster.runs.attach.detach import detach, refuse_attached

__all__ = ["AttachOptions", "attach", "detach", "refuse_attached"]

"""Trainings that others started: watched, never touched."""

from __future__ import annotations

from trainmaster.runs.attach.attach import AttachOptions, attach
from trainmaster.runs.attach.detach import detach, refuse_attached

__all__ = ["AttachOptions", "attach", "detach", "refuse_attached"]

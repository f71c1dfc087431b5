"""Trainings that others ran: their output folders, and going on from them."""

from __future__ import annotations

from trainmaster.runs.adopt.adopt import AdoptOptions, adopt

__all__ = ["AdoptOptions", "adopt"]

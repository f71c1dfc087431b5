"""Adopts the output folders of other trainings, and continues from them."""

from __future__ import annotations

from trainmaster.runs.adopt.adopt import AdoptOptions, adopt

__all__ = ["AdoptOptions", "adopt"]

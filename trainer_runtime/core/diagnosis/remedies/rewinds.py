"""The remedies of series findings: rungs of the ladder, with a rewind where it helps.

A detector declares which of them its findings get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """`rung` names the change, None for none. `rewinds`: resume from the newest verified checkpoint
    before the onset; `skips`: skip the data from there to the last odd step."""

    rung: str | None = None
    rewinds: bool = False
    skips: bool = False
    why: str = ""


_BACK = "Resume from the newest verified checkpoint before it."
REMEDIES: Mapping[str, Remedy] = {
    "rewind": Remedy(rewinds=True, why=_BACK),
    "rewind_skip_data": Remedy(rewinds=True, skips=True, why=f"{_BACK} Skip the data in between."),
    "rewind_halve_lr": Remedy("halve_lr", rewinds=True, why=_BACK),
    "rewind_raise_beta": Remedy("raise_beta", rewinds=True, why=_BACK),
    "rewind_tighter_clip": Remedy("tighter_clip", rewinds=True, why=_BACK),
    "bf16": Remedy("bf16", rewinds=True, why=_BACK),
    "tighter_clip": Remedy("tighter_clip"),
    "denser_checkpoints": Remedy("denser_checkpoints"),
    "double_micro_batch": Remedy("double_micro_batch"),
    "keep_fewer_checkpoints": Remedy("keep_fewer_checkpoints"),
}

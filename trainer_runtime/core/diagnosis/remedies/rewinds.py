"""The remedies of series findings: rungs of the ladder, with a rewind where it helps."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """`rung` names the change, None for none. `rewinds`: resume from the newest verified checkpoint
    before the onset; `skips`: skip the data from there to the last odd step."""

    rung: str | None = None
    rewinds: bool = False
    skips: bool = False
    why: str = ""


# Code of a series' finding -> remedies, best first.
OF_SERIES: Mapping[str, tuple[str, ...]] = {
    "nan_loss": ("bf16", "rewind_skip_data", "rewind_halve_lr", "rewind_tighter_clip"),
    "nan_grad": ("bf16", "rewind_skip_data", "rewind_halve_lr", "rewind_tighter_clip"),
    "loss_spike": (
        "rewind_skip_data",
        "rewind_halve_lr",
        "rewind_tighter_clip",
        "denser_checkpoints",
    ),
    "divergence": ("rewind_halve_lr", "rewind_skip_data", "rewind_tighter_clip"),
    "grad_norm_rising": ("tighter_clip", "denser_checkpoints"),
    "disk_filling": ("keep_fewer_checkpoints",),
    "gpu_idle": ("double_micro_batch",),
    "resume_mismatch": ("rewind",),
    "margin_collapse": ("rewind_halve_lr", "rewind_skip_data", "rewind_raise_beta"),
    "over_optimization": ("rewind_raise_beta", "rewind_halve_lr"),
    "kl_blowup": ("rewind_raise_beta", "rewind_halve_lr", "rewind_tighter_clip"),
    "reward_collapse": ("rewind_raise_beta", "rewind_halve_lr"),
}

# Codes that may lead to a rewind; a rising gradient norm precedes a spike.
ANNOUNCE_A_REWIND = frozenset(
    {
        "nan_loss",
        "nan_grad",
        "loss_spike",
        "divergence",
        "grad_norm_rising",
        "margin_collapse",
        "over_optimization",
        "kl_blowup",
        "reward_collapse",
    }
)

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

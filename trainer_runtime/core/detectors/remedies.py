"""Patches that findings of series propose: rungs of the one ladder, with a rewind where it helps.

What a rung changes stands in `signatures/remedies.py`; the three that only series ask for stand
here in the same shape. A patch keeps what is trained: the same tokens in a step, the same model,
the same length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer_runtime.core.detectors.board import Board
from trainer_runtime.core.detectors.sightings import Sighting
from trainer_runtime.core.duration import format_duration, parse_duration
from trainer_runtime.core.finding import Patch
from trainer_runtime.core.signatures.remedies import LADDER, Changes, Config, Rung, value_at

_FRAMEWORKS = frozenset({"nanogpt"})


@dataclass(frozen=True, slots=True)
class Remedy:
    """`rung` names what is changed, None: nothing. `rewinds`: it resumes from the newest verified
    checkpoint before the onset; `skips`: without the data from there to the last odd step."""

    rung: str | None = None
    rewinds: bool = False
    skips: bool = False
    why: str = ""


def patches_for(found: Sighting, board: Board) -> tuple[Patch, ...]:
    """The patches of a sighting's remedies, best first; without a configuration none."""
    if board.settings.config.get("framework") not in _FRAMEWORKS:
        return ()
    made = (_patch(name, found, board) for name in found.remedies)
    return tuple(patch for patch in made if patch is not None)


def _patch(name: str, found: Sighting, board: Board) -> Patch | None:
    remedy, config = REMEDIES[name], board.settings.config
    rung = _RUNGS.get(remedy.rung) if remedy.rung is not None else None
    changes = rung.rule(config) if rung is not None else {}
    if remedy.rung is not None and not changes:
        return None
    resume_from: str | int = "latest"
    skip = None
    if remedy.rewinds:
        safe = board.safe_step(found.onset)
        if safe is None and found.severity != "critical":
            return None
        resume_from = "scratch" if safe is None else safe
        skip = _skip(found, safe or 0, board) if remedy.skips else None
        if remedy.skips and skip is None:
            return None
    expected = {path: value_at(config, path) for path in changes}
    return Patch(name, changes, expected, _why(remedy, rung), resume_from, skip)


def _why(remedy: Remedy, rung: Rung | None) -> str:
    return " ".join(part for part in (remedy.why, rung.why if rung else "") if part)


def _skip(found: Sighting, safe: int, board: Board) -> Mapping[str, int] | None:
    """From the checkpoint's step to the last odd one: all that data is left out."""
    per_step = board.settings.sequences_per_step
    if per_step is None:
        return None
    last = found.values.get("last_step")
    bad = int(last) if isinstance(last, (int, float)) else found.onset
    return {"at_step": safe, "sequences": max(1, bad - safe) * per_step}


def _tighter_clip(config: Config) -> Changes:
    """Half of what it is; a clip of 0 clips nothing, and 1 is what most recipes use."""
    clip = value_at(config, "optimizer.grad_clip")
    if not isinstance(clip, (int, float)) or isinstance(clip, bool):
        return {}
    return {"optimizer.grad_clip": clip / 2 if clip > 0 else 1.0}


def _denser_checkpoints(config: Config) -> Changes:
    every = value_at(config, "checkpoint.every")
    if type(every) is int:
        return _every(config, every // 2) if every > 1 else {}
    try:
        return _every(config, format_duration(parse_duration(every) / 2))
    except (TypeError, ValueError):
        return {}


def _every(config: Config, every: int | str) -> Changes:
    """A value that was decided by itself would be decided again."""
    is_auto = value_at(config, "checkpoint.every_is_auto") is True
    return {"checkpoint.every": every} | ({"checkpoint.every_is_auto": False} if is_auto else {})


def _double_micro_batch(config: Config) -> Changes:
    micro = value_at(config, "batch.micro_batch")
    accumulation = value_at(config, "batch.accumulation")
    if type(micro) is not int or type(accumulation) is not int or accumulation % 2:
        return {}
    return {"batch.micro_batch": 2 * micro, "batch.accumulation": accumulation // 2}


def _rung(id: str, codes: str, why: str, rule: Callable[[Config], Changes]) -> Rung:
    return Rung(id, frozenset(codes.split()), _FRAMEWORKS, why, rule)


_OF_SERIES = (
    _rung(
        "tighter_clip",
        "nan_loss nan_grad loss_spike divergence grad_norm_rising",
        "Clipping at half the norm keeps one bad batch from moving the weights far.",
        _tighter_clip,
    ),
    _rung(
        "denser_checkpoints",
        "loss_spike grad_norm_rising",
        "Saving twice as often lets a rewind lose less.",
        _denser_checkpoints,
    ),
    _rung(
        "double_micro_batch",
        "gpu_idle",
        "Twice the sequences at once and half the accumulation: the same step in fewer launches.",
        _double_micro_batch,
    ),
)
_RUNGS = {rung.id: rung for rung in (*LADDER, *_OF_SERIES)}

_BACK = "Go back to the newest verified checkpoint before it."
REMEDIES: Mapping[str, Remedy] = {
    "rewind": Remedy(rewinds=True, why=_BACK),
    "rewind_skip_data": Remedy(
        rewinds=True, skips=True, why=f"{_BACK} The data that it came with is left out."
    ),
    "rewind_halve_lr": Remedy("halve_lr", rewinds=True, why=_BACK),
    "rewind_tighter_clip": Remedy("tighter_clip", rewinds=True, why=_BACK),
    "bf16": Remedy("bf16", rewinds=True, why=_BACK),
    "tighter_clip": Remedy("tighter_clip"),
    "denser_checkpoints": Remedy("denser_checkpoints"),
    "double_micro_batch": Remedy("double_micro_batch"),
    "keep_fewer_checkpoints": Remedy("keep_fewer_checkpoints"),
}

"""What LitGPT was asked for: the `hyperparameters.yaml` that it keeps beside each checkpoint.

Its own command line writes the file: mappings, one value on a line. Nothing else of YAML is read,
so that no package is needed where there may be none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "hyperparameters.yaml"
_MODEL = "model_config.yaml"
_LARGEST_BYTES = 1 << 20
_PRECISIONS = {"bf16": "bf16", "16": "fp16", "32": "fp32"}
# By their dotted names: whole numbers that mean the same here.
_COUNTS = {
    "train.micro_batch_size": "batch.micro_batch",
    "train.lr_warmup_steps": "schedule.warmup_steps",
    "eval.interval": "eval.every_steps",
    "eval.max_iters": "eval.batches",
    "seed": "seed",
}


def described(place: Path) -> dict[str, Any]:
    """The fields of a spec that the file of a checkpoint's folder gives; none where there is none.

    As in LitGPT's `pretrain`: `global_batch_size` counts sequences over all devices, `max_tokens`
    the tokens of all devices, and the learning rate falls to `min_lr` along a cosine.
    """
    settings = _values(place / NAME)
    if not settings:
        return {}
    fields: dict[str, Any] = {
        ours: count for theirs, ours in _COUNTS.items() if (count := _count(settings.get(theirs)))
    }
    length = _count(settings.get("train.max_seq_length"))
    length = length or _count(_values(place / _MODEL).get("block_size"))
    sequences = _count(settings.get("train.global_batch_size"))
    if length:
        fields["data.seq_len"] = length
    if length and sequences:
        fields["batch.tokens"] = length * sequences
        tokens = _count(settings.get("train.max_tokens"))
        if tokens and tokens >= length * sequences:
            fields["steps"] = tokens // (length * sequences)
    if steps := _count(settings.get("train.max_steps")):
        fields["steps"] = min(steps, fields.get("steps", steps))
    clip = _number(settings.get("train.max_norm"))
    if clip:
        fields["optimizer.grad_clip"] = clip
    precision = settings.get("precision", "").split("-")[0]
    if precision in _PRECISIONS:
        fields["precision"] = _PRECISIONS[precision]
    return {**fields, **_rate(settings)}


def _rate(settings: Mapping[str, str]) -> dict[str, Any]:
    highest = _number(settings.get("optimizer.init_args.lr"))
    lowest = _number(settings.get("train.min_lr"))
    if not highest:
        return {}
    rate_fields: dict[str, Any] = {"optimizer.lr": highest, "schedule.kind": "cosine"}
    if lowest is not None and lowest <= highest:
        rate_fields["schedule.min_lr_ratio"] = round(lowest / highest, 6)
    return rate_fields


def _values(path: Path) -> dict[str, str]:
    """The scalars of a file of nested mappings, by dotted names."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return {}
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    values: dict[str, str] = {}
    within: list[tuple[int, str]] = []
    for line in lines:
        name, colon, value = line.strip().partition(":")
        depth = len(line) - len(line.lstrip())
        while within and within[-1][0] >= depth:
            within.pop()
        if not colon or name.startswith(("-", "#")):
            continue
        within.append((depth, name))
        if value.strip():
            values[".".join(key for _, key in within)] = value.strip().strip("'\"")
    return values


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None

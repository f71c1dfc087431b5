"""Checkpoints of LitGPT's pretraining: `step-<step>/lit_model.pth` and `final/lit_model.pth`.

Each holds `model`, `optimizer`, `iter_num`, `step_count` and, of the loader, `train_dataloader`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.train.foreign import litgpt_settings
from trainer_runtime.train.foreign.archives import read_archive, refuse_non_finite, tensors_within
from trainer_runtime.train.foreign.records import Examined, Kind, Point, UnusableError

MODEL_FILE = "lit_model.pth"
# What our own LitGPT trainings read of it; its loader's state is of another loader.
KEPT = ("model", "optimizer", "iter_num", "step_count")
_NAME = re.compile(r"step-(\d{1,15})")
_DEPTH = 4
_METRICS = "metrics.csv"
_POINTS = {
    "loss": "loss",
    "learning_rate": "lr",
    "val_loss": "val_loss",
    "iter_time": "step_time_s",
    "total_tokens": "tokens",
}
_SIZES = {
    "n_layer": "model.n_layer",
    "n_head": "model.n_head",
    "n_query_groups": "model.n_kv_head",
    "n_embd": "model.d_model",
    "intermediate_size": "model.d_ff",
    "padded_vocab_size": "model.vocab_size",
}
_LARGEST_LOG_BYTES = 256 << 20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_NOTES = (
    "LitGPT keeps no random numbers: dropout uses new ones.",
    "LitGPT's loader keeps a position that only it can read: the data comes in our order from "
    "here on.",
    "The sizes are read from DIR whenever the run starts: keep it.",
)


def _candidates(folder: Path) -> list[Path]:
    folders = [
        path.parent
        for depth in range(_DEPTH)
        for path in folder.glob("*/" * depth + MODEL_FILE)
        if path.is_file()
    ]
    return sorted(folders, key=lambda place: (_step_in_name(place) or 0, place.name))


def _step_in_name(place: Path) -> int | None:
    named = _NAME.fullmatch(place.name)
    return int(named.group(1)) if named else None


def _examine(place: Path) -> Examined:
    document = read_archive(place / MODEL_FILE)
    if not isinstance(document, Mapping) or not isinstance(document.get("model"), Mapping):
        raise UnusableError(f"{MODEL_FILE} is not a checkpoint of LitGPT: it lacks the model")
    lacking = [key for key in KEPT if key not in document]
    if lacking:
        raise UnusableError(
            f"{MODEL_FILE} holds weights alone, no {lacking[0]}: nothing to resume, but weights to "
            "start from (model.path)"
        )
    step = document["step_count"]
    if type(step) is not int or step < 0:
        raise UnusableError("step_count is not a number of steps")
    if (named := _step_in_name(place)) is not None and named != step:
        raise UnusableError(f"{MODEL_FILE} is of step {step}")
    refuse_non_finite(dict(document["model"]), MODEL_FILE)
    refuse_non_finite(dict(tensors_within(document["optimizer"])), MODEL_FILE)
    history = _history(place, step, _iterations_per_step(document))
    return Examined(
        step=step,
        metrics=dict(history[-1][1]) if history and history[-1][0] == step else {},
        shape=_sizes(place),
        described={
            "model.path": str(place),
            **litgpt_settings.described(place),
            **_optimizer(document["optimizer"]),
        },
        open=() if any((place / name).exists() for name in _TOKENIZERS) else ("data.tokenizer",),
        history=history,
        notes=_NOTES,
    )


LITGPT = Kind(
    "litgpt",
    "step-<step>/lit_model.pth or final/lit_model.pth (LitGPT)",
    _candidates,
    _step_in_name,
    _examine,
)


def _sizes(place: Path) -> dict[str, Any]:
    """Those in model_config.yaml that stand on a line of their own, as LitGPT writes them."""
    described: dict[str, Any] = {}
    for line in _lines(place / "model_config.yaml"):
        name, _, value = line.partition(": ")
        if name in _SIZES and value.strip().isdigit():
            described[_SIZES[name]] = int(value)
    return described


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    first = groups[0] if isinstance(groups, list) and groups else {}
    decay, betas = first.get("weight_decay"), first.get("betas")
    return {
        **({"optimizer.weight_decay": decay} if isinstance(decay, (int, float)) else {}),
        **({"optimizer.betas": list(betas)} if isinstance(betas, (list, tuple)) else {}),
    }


def _iterations_per_step(document: Mapping[str, Any]) -> int:
    iterations, steps = document["iter_num"], document["step_count"]
    return max(1, iterations // steps) if type(iterations) is int and steps else 1


def _history(place: Path, until: int, iterations_per_step: int) -> list[Point]:
    """What the CSV logger beside the checkpoints kept up to a step: it counts iterations from 0."""
    logs = sorted(place.parent.glob(f"logs/csv/version_*/{_METRICS}"))
    by_step: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(_lines(logs[-1]) if logs else []):
        counted = _number(row.get("step"))
        step = 0 if counted is None else (int(counted) + 1) // iterations_per_step
        if not 0 < step <= until:
            continue
        for theirs, ours in _POINTS.items():
            value = _number(row.get(theirs))
            if value is not None:
                by_step.setdefault(step, {})[ours] = value
    return sorted(by_step.items())


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _LARGEST_LOG_BYTES:
            return []
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []

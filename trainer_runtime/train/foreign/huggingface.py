"""Checkpoints of Hugging Face Trainer, and of TRL's trainers, which are made of it.

`checkpoint-<step>/` holds the weights, optimizer.pt, scheduler.pt, rng_state*.pth and
trainer_state.json. training_args.bin is a pickle of the arguments themselves: it is never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer_runtime.core.decoding import number
from trainer_runtime.train.foreign.archives import (
    read_archive,
    read_document,
    read_weights,
    refuse_non_finite,
    tensors_within,
)
from trainer_runtime.train.foreign.rates import followed_schedule
from trainer_runtime.train.foreign.records import Examined, Kind, Point, UnusableError

# Neither read nor taken along: only the code that wrote it could.
NEVER_READ = frozenset({"training_args.bin"})
_NAME = re.compile(r"checkpoint-(\d{1,15})")
_STATE = "trainer_state.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors")
_LISTS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_REQUIRED = ("optimizer.pt", "scheduler.pt")
_SHARDED = ("global_step*", "pytorch_model_fsdp_*", "optimizer_*", "distcp")
_NAMES = {"learning_rate": "lr", "eval_loss": "val_loss"}
_OF_THE_CLOCK = ("_runtime", "_per_second")
_SUMMARY = ("train_loss", "train_runtime", "total_flos")
_NOTES = (
    "Trainer's order of the data is not known: it comes in our order from here on.",
    "The model's configuration is read from DIR whenever the run starts: keep it.",
)
_SIZES = {
    "model.n_layer": ("num_hidden_layers", "n_layer"),
    "model.n_head": ("num_attention_heads", "n_head"),
    "model.d_model": ("hidden_size", "n_embd"),
    "model.vocab_size": ("vocab_size",),
}
_FEW_POSITIONS = 1024
# Values that only TRL's trainers log, and the method that logs each.
_METHODS = (
    ("rewards/chosen", "dpo"),
    ("kl", "kto"),
    ("reward", "grpo"),
    ("mean_token_accuracy", "sft"),
)


def _candidates(folder: Path) -> list[Path]:
    if _NAME.fullmatch(folder.name) and (folder / _STATE).exists():
        return [folder]
    folders = [path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    return sorted(
        (path for path in folders if path.is_dir()), key=lambda path: _step_in_name(path) or 0
    )


def _step_in_name(place: Path) -> int | None:
    named = _NAME.fullmatch(place.name)
    return int(named.group(1)) if named else None


def _examine(place: Path) -> Examined:
    _refuse_sharded(place)
    state = read_document(place / _STATE)
    step = state.get("global_step")
    if type(step) is not int or step < 0:
        raise UnusableError(f"{_STATE} gives no step")
    if step != _step_in_name(place):
        raise UnusableError(f"{_STATE} is of step {step}")
    for file, tensors in _weights(place):
        refuse_non_finite(tensors, file)
    _refuse_incomplete(place)
    optimizer = read_archive(place / "optimizer.pt")
    refuse_non_finite(dict(tensors_within(optimizer)), "optimizer.pt")
    for path in [place / "scheduler.pt", *sorted(place.glob("rng_state*.pth"))]:
        read_archive(path)
    history = list(_history(state))
    return Examined(
        step=step,
        metrics=dict(history[-1][1]) if history and history[-1][0] == step else {},
        shape=_shape(place),
        described=_described(place, state, optimizer, history),
        open=() if (place / "tokenizer_config.json").exists() else ("data.tokenizer",),
        history=history,
        rate=_rate(optimizer, "lr"),
        notes=_NOTES,
    )


HUGGING_FACE = Kind("hf", "checkpoint-<step>/ (Trainer, TRL)", _candidates, _step_in_name, _examine)


def _refuse_sharded(place: Path) -> None:
    for pattern in _SHARDED:
        if sharded := sorted(path.name for path in place.glob(pattern) if path.is_dir()):
            raise UnusableError(
                f"its state is sharded over ranks ({sharded[0]}), which is not taken over yet"
            )


def _refuse_incomplete(place: Path) -> None:
    """Trainer itself would silently continue without them, with new moments and rates."""
    lacking = [name for name in _REQUIRED if not (place / name).is_file()]
    if not any(place.glob("rng_state*.pth")):
        lacking.append("rng_state.pth")
    if lacking:
        raise UnusableError(f"{', '.join(lacking)} missing: an incomplete checkpoint")


def _weights(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tensors of each file of weights.

    Raises:
        UnusableError: there are none, or one is missing or damaged.
    """
    names = [name for name in _WEIGHTS if (place / name).exists()][:1] or _listed(place)
    if not names:
        raise UnusableError(f"no weights: none of {', '.join(_WEIGHTS)}")
    for name in names:
        if name.endswith(".safetensors"):
            yield name, dict(read_weights(place / name))
        else:
            tensors = read_archive(place / name)
            if not isinstance(tensors, Mapping):
                raise UnusableError(f"{name} holds no weights")
            yield name, {str(key): value for key, value in tensors.items()}


def _listed(place: Path) -> list[str]:
    for name in _LISTS:
        if (place / name).exists():
            files = read_document(place / name).get("weight_map")
            named = sorted(set(files.values())) if isinstance(files, dict) else []
            if not named or any(Path(str(file)).name != file for file in named):
                raise UnusableError(f"{name} lists no files of its folder")
            return named
    return []


def _history(state: Mapping[str, Any]) -> Iterator[Point]:
    """What was logged, by step; several entries of one step are one point."""
    by_step: dict[int, dict[str, float]] = {}
    for entry in state.get("log_history") or ():
        step = entry.get("step") if isinstance(entry, dict) else None
        if type(step) is not int or any(name in entry for name in _SUMMARY):
            continue
        values = {
            _NAMES.get(name, name): value
            for name, raw in entry.items()
            if name != "step" and not name.endswith(_OF_THE_CLOCK)
            if (value := number(raw)) is not None
        }
        by_step.setdefault(step, {}).update(values)
    yield from sorted(by_step.items())


def _described(
    place: Path, state: Mapping[str, Any], optimizer: Any, history: Sequence[Point]
) -> dict[str, Any]:
    keys = {name for entry in state.get("log_history") or () for name in entry}
    method = next((method for name, method in _METHODS if name in keys), None)
    every = {"eval.every_steps": state.get("eval_steps")} if "eval_loss" in keys else {}
    described: dict[str, Any] = {
        "framework": "hf" if method is None else "trl",
        "method": method,
        "model.path": str(place),
        "data.seq_len": _longest(place),
        "steps": state.get("max_steps"),
        "batch.micro_batch": state.get("train_batch_size"),
        **every,
        **_optimizer(optimizer),
        **_schedule(state, optimizer, history),
    }
    if (place / "adapter_model.safetensors").exists():
        described |= _adapter(place)
    return described


def _shape(place: Path) -> dict[str, Any]:
    """The sizes in config.json, under whichever of a size's names stands there."""
    if not (place / "config.json").exists():
        return {}
    config = read_document(place / "config.json")
    sizes = {
        field: next((config[name] for name in names if type(config.get(name)) is int), None)
        for field, names in _SIZES.items()
    }
    return {field: value for field, value in sizes.items() if value is not None}


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    if not isinstance(groups, list) or not groups:
        return {}
    first = groups[0]
    betas = first.get("betas")
    described = {
        "optimizer.lr": _plain(first.get("initial_lr")),
        "optimizer.weight_decay": _plain(first.get("weight_decay")),
        "optimizer.betas": [_plain(beta) for beta in betas] if betas else None,
    }
    return {field: value for field, value in described.items() if value is not None}


def _schedule(state: Mapping[str, Any], optimizer: Any, history: Sequence[Point]) -> dict[str, Any]:
    highest, steps = _rate(optimizer, "initial_lr"), state.get("max_steps")
    if not highest or type(steps) is not int or steps < 1:
        return {}
    return followed_schedule(history, highest, steps)


def _rate(optimizer: Any, name: str) -> float | None:
    """`initial_lr`, what the schedule's factors are of, or `lr`, which the next step takes."""
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    return _plain(groups[0].get(name)) if isinstance(groups, list) and groups else None


def _longest(place: Path) -> int | None:
    """The longest sequence of a model whose positions are few: those are used up in training."""
    config = read_document(place / "config.json") if (place / "config.json").exists() else {}
    longest = config.get("max_position_embeddings", config.get("n_positions"))
    return longest if type(longest) is int and longest <= _FEW_POSITIONS else None


def _adapter(place: Path) -> dict[str, Any]:
    """A low-rank adapter and the model that it changes: a folder, or a name on the hub."""
    config = read_document(place / "adapter_config.json")
    base = str(config.get("base_model_name_or_path") or "")
    return {
        "model.path": base if base.startswith("/") else None,
        "model.hub": None if base.startswith("/") else base or None,
        "adapter.kind": "lora",
        "adapter.r": config.get("r"),
        "adapter.alpha": config.get("lora_alpha"),
    }


def _plain(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    return float(value) if isinstance(value, (int, float)) else None

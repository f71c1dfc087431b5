"""The loggers that a framework can write to: their names, options and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.errors import Problem
from trainmaster.spec.fields import nearest
from trainmaster.spec.places import Framework


@dataclass(frozen=True, slots=True)
class Tracker:
    """A logger. `secrets`: variables without which it can't write to its service; `offline`: the
    option with which it needs none, and that option's value."""

    frameworks: tuple[Framework, ...]
    options: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    offline: tuple[str, str] | None = None


_ALL: tuple[Framework, ...] = ("litgpt", "hf", "trl")
_TRAINERS: tuple[Framework, ...] = ("hf", "trl")

TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker(_ALL),
    "csv": Tracker(("litgpt",)),
    "wandb": Tracker(
        _ALL,
        ("project", "run", "group", "entity", "mode", "tags"),
        ("WANDB_API_KEY",),
        ("mode", "offline"),
    ),
    "mlflow": Tracker(_ALL, ("tracking_uri", "experiment_name")),
    "neptune": Tracker(_TRAINERS, ("project", "mode"), ("NEPTUNE_API_TOKEN",), ("mode", "offline")),
    "clearml": Tracker(
        _TRAINERS, ("project", "task"), ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY")
    ),
    "comet": Tracker(
        _TRAINERS, ("project_name", "workspace", "mode"), ("COMET_API_KEY",), ("mode", "offline")
    ),
}


def tracking_problems(given: Mapping[str, Any], framework: Framework) -> Iterator[Problem]:
    """What is wrong with `tracking`, for a framework that has loggers."""
    known = [name for name, tracker in TRACKERS.items() if framework in tracker.frameworks]
    for name, options in given.items():
        field = f"tracking.{name}"
        if name not in known:
            meant = nearest(name, known)
            guess = f" Did you mean `{meant}`?" if meant else ""
            told = f"`{field}` is no logger of {framework}.{guess}"
            yield Problem("UNKNOWN_KEY", field, told, f"It has {', '.join(known)}.")
        elif isinstance(options, Mapping):
            yield from _option_problems(field, options, TRACKERS[name])
        elif not isinstance(options, bool):
            takes = "true, or a mapping with its options"
            yield Problem(
                "WRONG_TYPE", field, f"`{field}` is {options!r}.", f"`{field}` takes {takes}."
            )
    written = [name for name, options in given.items() if options is not False]
    if framework == "litgpt" and len(written) > 1:
        told = f"`tracking` names {' and '.join(written)}, but LitGPT writes to one logger."
        yield Problem("INVALID_VALUE", f"tracking.{written[1]}", told, "Keep one of them.")


def missing_secrets(given: Mapping[str, Any], secrets: list[str]) -> Iterator[tuple[str, str]]:
    """Each logger that writes to a service, with a variable of its that is not under `secrets`."""
    for name, options in given.items():
        tracker = TRACKERS.get(name)
        if tracker is None or options is False or _is_offline(tracker, options):
            continue
        yield from ((name, secret) for secret in tracker.secrets if secret not in secrets)


def _option_problems(field: str, options: Mapping[str, Any], tracker: Tracker) -> Iterator[Problem]:
    for name, value in options.items():
        if name not in tracker.options:
            takes = ", ".join(tracker.options) or "no options: write true"
            told = f"`{field}.{name}` is no option of it."
            yield Problem("UNKNOWN_KEY", f"{field}.{name}", told, f"`{field}` takes {takes}.")
        elif not isinstance(value, str | int | float | bool):
            told = f"`{field}.{name}` is {value!r}."
            yield Problem("WRONG_TYPE", f"{field}.{name}", told, "Give a text.")


def _is_offline(tracker: Tracker, options: Any) -> bool:
    if tracker.offline is None or not isinstance(options, Mapping):
        return False
    option, value = tracker.offline
    return bool(options.get(option) == value)

"""The loggers that a framework can write to: their names, options and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainer_runtime.core.records import dataclass
from trainmaster.plan.spec.fields import nearest
from trainmaster.plan.spec.places import Framework
from trainmaster.words.errors import Problem


@dataclass(frozen=True, slots=True)
class Tracker:
    """A logger. `options` by the frameworks that have it; `secrets`: variables without which it
    can't write to its service; `offline`: the option with which it needs none, and its value."""

    options: Mapping[Framework, tuple[str, ...]]
    secrets: tuple[str, ...] = ()
    offline: tuple[str, str] | None = None


def _of_trainers(*options: str) -> dict[Framework, tuple[str, ...]]:
    """They reach the logger as variables: wandb's `project` as WANDB_PROJECT."""
    return {"hf": options, "trl": options}


_OFFLINE = ("mode", "offline")

TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker({"litgpt": (), **_of_trainers()}),
    "csv": Tracker({"litgpt": ()}),
    "wandb": Tracker(
        {
            "litgpt": ("project", "run", "group"),
            **_of_trainers("project", "name", "entity", "run_group", "tags", "mode"),
        },
        ("WANDB_API_KEY",),
        _OFFLINE,
    ),
    "mlflow": Tracker({"litgpt": (), **_of_trainers("tracking_uri", "experiment_name")}),
    "neptune": Tracker(_of_trainers("project", "mode"), ("NEPTUNE_API_TOKEN",), _OFFLINE),
    "clearml": Tracker(
        _of_trainers("project", "task"), ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY")
    ),
    "comet": Tracker(
        _of_trainers("project_name", "workspace", "mode"), ("COMET_API_KEY",), _OFFLINE
    ),
}


def tracking_problems(given: Mapping[str, Any], framework: Framework) -> Iterator[Problem]:
    """What is wrong with `tracking`, for a framework that has loggers."""
    known = [name for name, tracker in TRACKERS.items() if framework in tracker.options]
    for name, options in given.items():
        field = f"tracking.{name}"
        if name not in known:
            meant = nearest(name, known)
            guess = f" Did you mean `{meant}`?" if meant else ""
            problem = f"`{field}` is not a logger of {framework}.{guess}"
            yield Problem("UNKNOWN_KEY", field, problem, f"It has {', '.join(known)}.")
        elif isinstance(options, Mapping):
            yield from _option_problems(field, options, TRACKERS[name].options[framework])
        elif not isinstance(options, bool):
            takes = "true, or a mapping with its options"
            yield Problem(
                "WRONG_TYPE", field, f"`{field}` is {options!r}.", f"`{field}` takes {takes}."
            )
    written = [name for name, options in given.items() if options is not False]
    if framework == "litgpt" and len(written) > 1:
        problem = f"`tracking` names {' and '.join(written)}, but LitGPT writes to one logger."
        yield Problem("INVALID_VALUE", f"tracking.{written[1]}", problem, "Keep one of them.")


def missing_secrets(
    given: Mapping[str, Any], secrets: Sequence[str], variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each logger that writes to a service, with a variable of its that is not under `secrets`;
    `variables` are the plain ones, which may send it offline."""
    for name, options in given.items():
        tracker = TRACKERS.get(name)
        if tracker is None or options is False or _is_offline(name, tracker, options, variables):
            continue
        yield from ((name, secret) for secret in tracker.secrets if secret not in secrets)


def _option_problems(
    field: str, options: Mapping[str, Any], known: tuple[str, ...]
) -> Iterator[Problem]:
    for name, value in options.items():
        if name not in known:
            takes = ", ".join(known) or "no options: write true"
            problem = f"`{field}.{name}` is not an option of it."
            yield Problem("UNKNOWN_KEY", f"{field}.{name}", problem, f"`{field}` takes {takes}.")
        elif not isinstance(value, str | int | float | bool):
            problem = f"`{field}.{name}` is {value!r}."
            yield Problem("WRONG_TYPE", f"{field}.{name}", problem, "Give a text.")


def _is_offline(name: str, tracker: Tracker, options: Any, variables: Mapping[str, str]) -> bool:
    if tracker.offline is None:
        return False
    option, value = tracker.offline
    given = options.get(option) if isinstance(options, Mapping) else None
    return value in (given, variables.get(f"{name}_{option}".upper()))

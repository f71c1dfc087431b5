"""The loggers that a spec names: their options and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.errors.errors import Problem
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.frameworks import Framework


@dataclass(frozen=True, slots=True)
class Service:
    """What a logger writes to. `secrets`: variables without which it can't; `offline`: the option
    with which it needs none, and its value."""

    secrets: tuple[str, ...]
    offline: tuple[str, str] | None = None


_OFFLINE = ("mode", "offline")

_SERVICES: Mapping[str, Service] = {
    "wandb": Service(("WANDB_API_KEY",), _OFFLINE),
    "neptune": Service(("NEPTUNE_API_TOKEN",), _OFFLINE),
    "clearml": Service(("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY")),
    "comet": Service(("COMET_API_KEY",), _OFFLINE),
}


def tracking_problems(services: Mapping[str, Any], framework: Framework) -> Iterator[Problem]:
    """What is wrong with `tracking`, for a framework that has loggers."""
    loggers = framework.loggers
    for name, options in services.items():
        field = f"tracking.{name}"
        if name not in loggers:
            meant = nearest(name, list(loggers))
            guess = f" Did you mean `{meant}`?" if meant else ""
            problem = f"`{field}` is not a logger of {framework.name}.{guess}"
            yield Problem("UNKNOWN_KEY", field, problem, f"It has {', '.join(loggers)}.")
        elif isinstance(options, Mapping):
            yield from _option_problems(field, options, loggers[name])
        elif not isinstance(options, bool):
            takes = "true, or a mapping with its options"
            yield Problem(
                "WRONG_TYPE", field, f"`{field}` is {options!r}.", f"`{field}` takes {takes}."
            )
    written = [name for name, options in services.items() if options is not False]
    most = framework.loggers_at_once
    if most is not None and len(written) > most:
        problem = (
            f"`tracking` names {' and '.join(written)}, but {framework.name} writes to one logger."
        )
        yield Problem("INVALID_VALUE", f"tracking.{written[1]}", problem, "Keep one of them.")


def missing_secrets(
    services: Mapping[str, Any], secrets: Sequence[str], variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each logger that writes to a service, with a variable of its that is not under `secrets`;
    `variables` are the plain ones, which may send it offline."""
    for name, options in services.items():
        service = _SERVICES.get(name)
        if service is None or options is False or _is_offline(name, service, options, variables):
            continue
        yield from ((name, secret) for secret in service.secrets if secret not in secrets)


def _option_problems(
    field: str, options: Mapping[str, Any], known_options: tuple[str, ...]
) -> Iterator[Problem]:
    for name, value in options.items():
        if name not in known_options:
            takes = ", ".join(known_options) or "no options: write true"
            problem = f"`{field}.{name}` is not an option of it."
            yield Problem("UNKNOWN_KEY", f"{field}.{name}", problem, f"`{field}` takes {takes}.")
        elif not isinstance(value, str | int | float | bool):
            problem = f"`{field}.{name}` is {value!r}."
            yield Problem("WRONG_TYPE", f"{field}.{name}", problem, "Give a text.")


def _is_offline(name: str, service: Service, options: Any, variables: Mapping[str, str]) -> bool:
    if service.offline is None:
        return False
    option, value = service.offline
    value_given = options.get(option) if isinstance(options, Mapping) else None
    return value in (value_given, variables.get(f"{name}_{option}".upper()))

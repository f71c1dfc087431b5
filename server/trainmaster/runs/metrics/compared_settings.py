"""The configuration of a run as dotted settings, and in what several runs differ. Only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from trainer_runtime.core.config.rehost import PLACEMENT
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.store.secret_patterns import mask_patterns
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# They differ in all runs, or in each attempt.
_NOT_SHOWN = frozenset({"attempt", "config_version", "name", "run_id", PLACEMENT})
_MOST = 500
_LONGEST = 400


def settings_of(workspace: Workspace, view: RunView) -> dict[str, Any]:
    """The values of a run's newest configuration by dotted name; what has the form of a secret is
    masked."""
    config = newest_config(workspace, view)
    shown = {name: value for name, value in config.items() if name not in _NOT_SHOWN}
    return dict(islice(_leaves(shown, ""), _MOST))


def differences(runs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Any]], int]:
    """By dotted name the values that not all runs have alike, None where one has none; and how
    many settings are alike."""
    names = dict.fromkeys(name for settings in runs for name in settings)
    values = {name: [settings.get(name) for settings in runs] for name in names}
    unlike = {
        name: row for name, row in values.items() if any(value != row[0] for value in row[1:])
    }
    return unlike, len(values) - len(unlike)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{at}]")
    else:
        yield path, _masked(value)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_patterns(value[:_LONGEST])
    if isinstance(value, list):
        return [_masked(item) for item in value[:_LONGEST]]
    return value

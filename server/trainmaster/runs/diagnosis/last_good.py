"""Compares a run that failed with the last one of its spec that completed.

What both records hold is compared: settings, data, code, host, and what the trainers reported of
their environment. A run is of the same spec if it has the same framework and name, up to the number
that keeps names unique.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainer_runtime.core.protocol.states import RunState
from trainmaster.answers.diagnosis import ComparedRun
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_MOST, _LONGEST = 12, 60
_SEARCHED, _READ = 200, 20
_NUMBER = re.compile(r"-\d+$")
# Different in each run, or following from other fields.
_NOT_COMPARED = frozenset({"run_id", "name", "derived", "inputs", "labels", "alerts"})
_NOT_OF_DATA = frozenset({"cache_dir", "upload", "skip", "tokenizer_digest"})
_CODE = frozenset({"commit", "dirty", "digest", "source", "folder"})
# What a trainer's host reported may stand here only as a version or a device's name.
_REPORTED = {"torch": re.compile(r"[\w.+-]{1,40}"), "device": re.compile(r"[\w :.()-]{1,40}")}


def compared_with_last_good(workspace: Workspace, view: RunView) -> ComparedRun | None:
    """What differs from the last completed run of the spec; None where there is none, or where the
    run has not failed."""
    if view.state is not RunState.FAILED or view.run.is_attached:
        return None
    good = _last_good(workspace, view.run)
    if good is None:
        return None
    differences = [*_of_code(good.run, view.run), *_of_documents(good.run, view.run)]
    differences += _of_places(good, view)
    lines = [f"{name}: {_shown(old)} -> {_shown(new)}" for name, old, new in differences]
    omitted = max(0, len(lines) - _MOST)
    return ComparedRun(run_id=good.run.run_id, differs=lines[:_MOST], omitted=omitted or None)


def _last_good(workspace: Workspace, run: Run) -> RunView | None:
    base = _NUMBER.sub("", run.name)
    read = 0
    for row in workspace.control.list.newest(_SEARCHED, ended=RunState.COMPLETED.value):
        if _NUMBER.sub("", row.name) != base or row.created_t >= run.created_t:
            continue
        if read == _READ:
            return None
        read += 1
        view = load_view(workspace, row.run_id)  # it may have ended since the list was written
        is_alike = view.run.document.get("framework") == run.document.get("framework")
        if is_alike and view.state is RunState.COMPLETED:
            return view
    return None


def _of_code(good: Run, bad: Run) -> Iterator[tuple[str, Any, Any]]:
    old, new = _code(good), _code(bad)
    if old != new:
        yield "code", old, new


def _code(run: Run) -> str | None:
    script = run.document.get("script") or {}
    commit, digest = script.get("commit"), script.get("digest")
    content = None if digest is None else f"sha256:{digest[:12]}"
    if commit is None:
        return content
    return f"{commit[:12]} with changes {content}" if script.get("dirty") else str(commit[:12])


def _of_documents(good: Run, bad: Run) -> Iterator[tuple[str, Any, Any]]:
    old, new = dict(_flat(good.document, "")), dict(_flat(bad.document, ""))
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values of a document under dotted names; a list of named items by these."""
    if isinstance(value, Mapping):
        for key, part_value in value.items():
            if not _is_left(name, key):
                yield from _flat(part_value, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and all(map(_is_named, value)):
        for part_value in value:
            rest = {key: part for key, part in part_value.items() if key != "name"}
            yield from _flat(rest, f"{name}.{part_value['name']}")
    else:
        yield name, value


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and "name" in value


def _is_left(name: str, key: str) -> bool:
    if not name:
        return key in _NOT_COMPARED
    if name == "script":
        return key in _CODE
    if name in ("optimizer", "eval"):
        return key in ("usual_lr", "batch_size")  # they follow from others
    # A path in the cache holds the fingerprint, which is compared by itself.
    is_path = key == "path" and name.startswith(("data.sources.", "data.validation."))
    return is_path or (name == "data" and key in _NOT_OF_DATA)


def _of_places(good: RunView, bad: RunView) -> Iterator[tuple[str, Any, Any]]:
    if good.run.host != bad.run.host:
        yield "host", good.run.host, bad.run.host
    for name in _REPORTED:
        old, new = _reported(good, name), _reported(bad, name)
        if old is not None and new is not None and old != new:
            yield f"environment.{name}", old, new


def _reported(view: RunView, name: str) -> str | None:
    for progress in reversed(view.attempts):
        value = progress.described.get(name)
        if isinstance(value, str) and _REPORTED[name].fullmatch(value):
            return value
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

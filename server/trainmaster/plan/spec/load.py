"""Reads a spec from a file or from text, applies --set, and checks it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.files.protected import open_unprotected
from trainer_runtime.core.files.regular import read_opened
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainmaster.errors.errors import SpecError
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.spec.sets import apply_sets
from trainmaster.plan.spec.support import refuse_what_is_not_built
from trainmaster.plan.spec.validate import shown, validate
from trainmaster.settings.yaml12 import MAX_BYTES, load_yaml, too_large

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PATH_FIELDS = ("requirements", "setup")
# Any other tokenizer is a name on the hub.
_PATH_BEGINNINGS = ("/", "./", "../", "~/")
_ON_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*:/")


def load_spec(
    source: str | Path, sets: Sequence[str] = (), *, real: Path | None = None
) -> TrainingSpec:
    """The spec at a path, or in YAML text, with `sets` (`path=value` each) applied.

    `real`: where the path led when a policy allowed it; nothing else is read.

    A string with a line break or with a colon and a space in it, or one that starts with a brace,
    is text; any other is a path.
    Relative paths within the spec start at its file's folder, or at the working folder for text.
    In the result they are absolute, and every source has a name.

    Raises:
        SpecError: it can't be read, or listing everything in it that is wrong or not built yet.
    """
    text, folder = _read(source, real)
    document = load_yaml(text)
    if isinstance(document, dict):
        # Before, so that --set can address them; after, because --set may bring new ones.
        _name_sources(document, folder)
        document = apply_sets(document, sets)
        _split_hosts(document)
        _name_sources(document, folder)
        _absolute_paths(document, folder)
    spec = validate(document)
    refuse_what_is_not_built(spec)
    return spec


def spec_path(source: str | Path) -> Path | None:
    """The path of the file that a spec is read from; None for YAML text."""
    is_text = isinstance(source, str) and _is_text(source)
    return None if is_text else _expanded(str(source))


def _read(source: str | Path, real: Path | None) -> tuple[str, Path]:
    path = spec_path(source)
    if path is None:
        return str(source), Path.cwd()
    try:
        if not path.is_file():
            problem = "it is not a file" if path.exists() else "it does not exist"
            raise _unreadable(path, problem)
        data = read_opened(open_unprotected(path, os.O_NONBLOCK, real=real), MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise too_large()
        return data.decode("utf-8-sig"), path.absolute().parent
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from None


def _is_text(source: str) -> bool:
    return "\n" in source or ": " in source or source.lstrip().startswith("{")


def _unreadable(path: Path, problem: str) -> SpecError:
    return SpecError(
        "SPEC_NOT_READABLE",
        f"The spec {shown(str(path))} can't be read: {problem}.",
        "Give the path of a YAML file, or the YAML text itself.",
    )


def _name_sources(document: dict[str, Any], folder: Path) -> None:
    """Gives sources without a name their file's or folder's, numbered where that is taken."""
    sources = _inputs(document)
    taken = {str(source["name"]) for source in sources if source.get("name") is not None}
    for source in sources:
        path = source.get("path")
        if source.get("name") is not None or not isinstance(path, str):
            continue
        base = _UNSAFE.sub("-", _absolute(path, folder).name).lstrip("._-")
        base = base.replace("..", ".")[:56] or "main"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        source["name"] = name


def _split_hosts(document: dict[str, Any]) -> None:
    """`host: [a, b]` is host a with b among the other hosts."""
    hosts = document.get("host")
    if isinstance(hosts, list) and hosts and "other_hosts" not in document:
        document["host"], document["other_hosts"] = hosts[0], hosts[1:]


def _absolute_paths(document: dict[str, Any], folder: Path) -> None:
    for source in _inputs(document):
        if str(source.get("path")).startswith(HUB):
            source.setdefault("format", "parquet")  # what the hub itself turns data sets into
        elif not str(source.get("path")).startswith((ON_BOX, *STORES)):
            _make_absolute(source, "path", folder)
    model = document.get("model")
    if isinstance(model, dict) and not str(model.get("path")).startswith(ON_BOX):
        _make_absolute(model, "path", folder)
    data = document.get("data")
    if isinstance(data, dict) and str(data.get("tokenizer")).startswith(_PATH_BEGINNINGS):
        _make_absolute(data, "tokenizer", folder)
    script = document.get("script")
    if isinstance(script, dict) and not str(script.get("path")).startswith(ON_BOX):
        _make_absolute(script, "path", folder)
    if isinstance(document.get("method_args"), dict):
        _make_absolute(document["method_args"], "reward_file", folder)
    environment = document.get("environment")
    if isinstance(environment, dict):
        for field in _PATH_FIELDS:
            _make_absolute(environment, field, folder)
        if not _ON_HOST.match(str(environment.get("wheels"))):
            _make_absolute(environment, "wheels", folder)
        # The interpreter is the host's, and may be a name on its search path.
        if document.get("host", "local") == "local" and "/" in str(environment.get("python")):
            _make_absolute(environment, "python", folder)


def _make_absolute(holder: dict[str, Any], field: str, folder: Path) -> None:
    path = holder.get(field)
    if isinstance(path, str) and path:
        holder[field] = str(_absolute(path, folder))


def _absolute(path: str, folder: Path) -> Path:
    # Not `resolve`: the user's links are part of the name.
    return Path(os.path.normpath(folder.absolute() / _expanded(path)))


def _expanded(path: str) -> Path:
    # Only one's own home: a name that no user has would raise.
    return Path(path).expanduser() if path.startswith("~/") else Path(path)


def _inputs(document: dict[str, Any]) -> list[dict[str, Any]]:
    data = document.get("data")
    return [*_mappings(data, "sources"), *_mappings(data, "validation")]


def _mappings(section: Any, key: str) -> list[dict[str, Any]]:
    items = section.get(key) if isinstance(section, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []

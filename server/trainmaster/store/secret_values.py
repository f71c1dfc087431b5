"""The values of the secrets that a spec names: their sources, and their storage in the home.

All files are readable by their owner only. Values never enter a command line, a rendered file, an
answer or a database; `masking` keeps them out of the mirror.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.masking import SHORTEST_VALUE
from trainer_runtime.core.records import dataclass
from trainmaster.errors.errors import HostError, StateError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import read_settings

HF_TOKEN = "HF_TOKEN"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_LARGEST_FILE_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Numbers and short plain words occur in logs by themselves, and would be masked there.
_COMMON = re.compile(r"[-+.0-9]{0,11}|[a-z_]{0,11}|[A-Z_]{0,11}")


def find_values(home: Home, names: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret: from `environment`, the home's `secrets.env`, or for `HF_TOKEN`
    the token file of the Hugging Face tools.

    Raises:
        StateError: `SECRET_NOT_ALLOWED`, `SECRET_MISSING`, `SECRET_INVALID`,
            `SETTINGS_NOT_READABLE`.
    """
    if not names:
        return {}
    _refuse_not_allowed(home, names)
    values = {}
    for name in names:
        value = _value(home, name, environment)
        if value is None:
            raise _missing(home, name, environment)
        _refuse_unmaskable(name, value)
        values[name] = value
    return values


def find_value(home: Home, name: str, environment: Mapping[str, str], field: str) -> str:
    """The value of one secret that the client itself needs; `field` names it in the settings.

    Raises:
        StateError: `SECRET_MISSING`, `SECRET_INVALID`.
    """
    value = _value(home, name, environment)
    if value is None:
        missing = _missing(home, name, environment)
        missing.field = field
        raise missing
    return value


def stored_names(home: Home) -> set[str]:
    """The names that have a value in the home's `secrets.env`.

    Raises:
        StateError: `SECRET_INVALID`.
    """
    return {name for name, value in _read_file(home).items() if value}


def maskable_values(home: Home, names: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The values of these names, and all in the home's `secrets.env` that a mask may hide.

    Raises:
        StateError: as `find_values`.
    """
    return [*find_values(home, names, environment).values(), *_uncommon(home)]


def where_kept(home: Home, names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The source of the value of each name that has one; never the value itself.

    Raises:
        StateError: `SECRET_INVALID`.
    """
    stored = stored_names(home)
    return {
        name: "the environment" if environment.get(name) else home.secrets_env.name
        for name in names
        if environment.get(name) or name in stored
    }


def keep(home: Home, run_id: str, values: Mapping[str, str]) -> None:
    """Store the values that a run is given, for delivery and masking; nothing without values.

    Earlier values are kept for masking: the log may not have been read to its end.
    """
    before = _read_values(home, run_id)
    earlier = {*before.earlier, *before.values.values()} - set(values.values())
    path = home.secrets(run_id)
    if not values and not earlier:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    document = {"values": dict(values), "earlier": sorted(earlier)}
    write_atomic(path, json.dumps(document).encode(), 0o600)


def kept(home: Home, run_id: str, names: Sequence[str]) -> dict[str, str]:
    """The values of these names that a run was given.

    Raises:
        HostError: `SECRET_MISSING`, a value was deleted.
    """
    values = _read_values(home, run_id).values
    missing = [name for name in names if name not in values]
    if missing:
        raise HostError(
            "SECRET_MISSING",
            f"{_listed(missing)} of run {run_id} is not in {home.secrets(run_id)} any more.",
            f"Stop the run ({command('stop', run_id)}) and resume it: the values are collected "
            "again then.",
        )
    return {name: values[name] for name in names}


def to_mask(home: Home, run_id: str) -> list[str]:
    """Every value that the files of the run may contain.

    Raises:
        OSError, ValueError: the values can't be read; then nothing may be mirrored.
    """
    kept = _read_values(home, run_id)
    return [*kept.values.values(), *kept.earlier]


def to_mask_ever(
    home: Home, run_id: str, names: Iterable[str], environment: Mapping[str, str]
) -> list[str]:
    """As `to_mask`, also after the end of the run, when what was kept for it has been deleted: its
    secrets of these names as they are now, and the home's `secrets.env`.

    Raises:
        StateError: `SECRET_INVALID`.
        OSError, ValueError: as `to_mask`.
    """
    values = (_value(home, name, environment) for name in names)
    return [*to_mask(home, run_id), *_uncommon(home), *filter(None, values)]


def forget(home: Home, run_id: str) -> bool:
    """Delete the values of a run, True if it had any; idempotent."""
    try:
        home.secrets(run_id).unlink()
    except FileNotFoundError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Kept:
    """The stored values of a run by name, and earlier values that are only masked."""

    values: Mapping[str, str]
    earlier: Sequence[str]


def _read_values(home: Home, run_id: str) -> _Kept:
    try:
        document = json.loads(home.secrets(run_id).read_bytes())
    except FileNotFoundError:
        return _Kept({}, ())
    return _Kept(document.get("values", {}), document.get("earlier", ()))


def _refuse_not_allowed(home: Home, names: Sequence[str]) -> None:
    allowed = read_settings(home).secrets.allow
    refused = [name for name in names if name not in allowed]
    if refused:
        wanted = ", ".join([*allowed, *refused])
        raise StateError(
            "SECRET_NOT_ALLOWED",
            f"The settings don't allow {_listed(refused)} to leave this machine.",
            f"To allow it, write into {home.settings} (one line): secrets: {{allow: [{wanted}]}}",
            field="secrets",
        )


def _value(home: Home, name: str, environment: Mapping[str, str]) -> str | None:
    places: tuple[Callable[[], str | None], ...] = (
        lambda: environment.get(name),
        lambda: _read_file(home).get(name),
        lambda: _hugging_face_token(environment) if name == HF_TOKEN else None,
    )
    return next((value for place in places if (value := place())), None)


def _uncommon(home: Home) -> list[str]:
    """The values in the home's `secrets.env` that a mask may hide."""
    return [
        value
        for value in _read_file(home).values()
        if len(value) >= SHORTEST_VALUE and not _COMMON.fullmatch(value)
    ]


def _read_file(home: Home) -> dict[str, str]:
    path = home.secrets_env
    try:
        status = path.stat()
        if status.st_mode & _OTHERS:
            raise _unusable(
                f"{path} can be read by others than its owner.", f"Run: chmod 600 {path}"
            )
        text = path.read_bytes()[:_LARGEST_FILE_BYTES].decode()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, ValueError) else str(error)
        raise _unusable(f"{path} can't be read: {reason}.", "Make it readable.") from None
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise _unusable(
                f"Line {number} of {path} is not `NAME=value`.",
                "Write one `NAME=value` per line; lines that start with # are comments.",
            )
        values[match[1]] = _unquoted(match[2])
    return values


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


def _hugging_face_token(environment: Mapping[str, str]) -> str | None:
    for path in _token_files(environment):
        try:
            return path.read_text().strip() or None
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise _unusable(f"{path} can't be read.", "Make it readable.") from error
    return None


def _token_files(environment: Mapping[str, str]) -> list[Path]:
    """By the rules of huggingface_hub's `constants.py`."""
    if environment.get("HF_TOKEN_PATH"):
        return [Path(os.path.expanduser(environment["HF_TOKEN_PATH"]))]
    if environment.get("HF_HOME"):
        return [Path(os.path.expanduser(environment["HF_HOME"])) / "token"]
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return [Path(os.path.expanduser(cache)) / "huggingface" / "token"]


def _refuse_unmaskable(name: str, value: str) -> None:
    if "\0" in value:
        raise _unusable(f"The value of {name} holds a NUL byte.", "Give it as text.")
    if len(value) < SHORTEST_VALUE or _COMMON.fullmatch(value):
        raise _unusable(
            f"The value of {name} is too short or plain to be masked: unrelated words of "
            "the logs would be hidden too.",
            "Use a longer value of letters and digits.",
        )


def _missing(home: Home, name: str, environment: Mapping[str, str]) -> StateError:
    places = [f"the environment ({name})", f"{home.secrets_env} (a line {name}=…, mode 0600)"]
    if name == HF_TOKEN:
        places += [str(path) for path in _token_files(environment)]
    return StateError(
        "SECRET_MISSING",
        f"The secret {name} has no value; searched {_listed(places)}.",
        "Store it in one of these places.",
        field="secrets",
    )


def _unusable(message: str, fix: str) -> StateError:
    return StateError("SECRET_INVALID", message, fix, field="secrets")


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]

"""Code that a spec brings to this machine: interpreters, scripts, packages, and variables that
may decide what runs. A person trusts it once, by its folder and digest.

On another host where an agent may launch it runs without that: a launch is code there anyway.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.protocol.command import command
from trainmaster.answers.trust import TrustAnswer
from trainmaster.backends import HERE, LOCAL
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import PlanError, PolicyError, UsageError
from trainmaster.home.paths import Home
from trainmaster.home.user_paths import user_path
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec
from trainmaster.runs.planning.code_folder import code_digest
from trainmaster.settings.policy import shown_path
from trainmaster.settings.spec_variables import is_harmless
from trainmaster.sync.workspace import Workspace

PYTHON_FIELD = "environment.python"
PROGRAM_FIELD = "script.path"
_PREFIX = "trusted/"
_PYTHON_NAME = re.compile(r"(python|pypy)[0-9.]*t?")
_ENVIRONMENTS = ("bin/python", ".venv/bin/python", "venv/bin/python", ".env/bin/python")
_ENVIRONMENTS_FILE = "pyvenv.cfg"
_LONGEST_SHOWN = 100
_MOST_BYTES = 8 << 30  # of a program's folder: all of it is read


@dataclass(frozen=True, slots=True)
class Code:
    """One piece of code: the spec's field that names it, where it lies, and its SHA-256. `folder`:
    its folder as named, and where that leads if elsewhere; empty for the value of a variable."""

    field: str
    shown: str
    folder: str
    digest: str

    @property
    def key(self) -> str:
        """What identifies it on record."""
        return f"{_PREFIX}{self.digest}{self.folder}"


def untrusted_code(workspace: Workspace, spec: TrainingSpec) -> list[Code]:
    """The code that a spec brings to this machine and that no person has trusted; none where the
    caller is a person."""
    if not workspace.policy.bound or spec.host not in HERE:
        return []
    trusted = workspace.control.facts
    return [code for code in code_of(spec, workspace.home) if trusted.get(code.key) is None]


def untrusted_python(workspace: Workspace, host: str, python: str) -> Code | None:
    """An interpreter of this machine that no person has trusted; None where the caller is one."""
    if not workspace.policy.bound or host not in HERE or _is_systems(python):
        return None
    brought = _found(PYTHON_FIELD, _located(python), workspace.home)
    trusted = workspace.control.facts
    return next((code for code in brought if trusted.get(code.key) is None), None)


def code_at(field: str, path: Path, home: Home, content: bytes | None = None) -> Code | None:
    """The code at a path; None where there is none. `content`: what was read there before; `home`:
    whose keys are no code.

    Raises:
        PlanError: `CODE_TOO_LARGE`, `CODE_INCOMPLETE`, a program's folder can't be known by digest.
    """
    place = os.path.abspath(path)
    try:
        if field == PROGRAM_FIELD:
            digest: str | None = code_digest(path, _MOST_BYTES, home)
        else:
            digest = _listing_digest(path) if path.is_dir() else _program_digest(path, content)
    except (OSError, ValueError):
        return None
    except PlanError as error:
        if error.code == "CODE_MISSING" and not path.is_dir():
            return None
        raise
    if digest is None:
        return None
    named, real = os.path.dirname(place), os.path.realpath(os.path.dirname(path))
    folder = named if named == real else f"{named}\0{real}"
    return Code(field, shown_path(place), folder, digest)


def code_error(workspace: Workspace, code: Code) -> PolicyError:
    """The refusal to run untrusted code."""
    return workspace.policy.program_error(
        f"`{code.field}` would run {code.shown} on this machine, which no person has trusted.",
        f"Ask the user: launch asks them, or they run {command('trust', code.shown)}."
        if code.folder
        else "Ask the user: launch asks them.",
        f"run {code.shown} on this machine (`{code.field}`)",
        code.field,
    )


def changed_error(code: Code) -> PolicyError:
    """The refusal of code that changed after the caller was allowed to run or send it."""
    return PolicyError(
        "POLICY_PROGRAM",
        f"{code.shown} (`{code.field}`) changed while this was planned.",
        "Call again: what it is now is asked for.",
        field=code.field,
        retryable=True,
    )


def trust(workspace: Workspace, code: Code, by: str) -> None:
    """Record a person's word on a piece of code: it holds until its content changes."""
    word = json.dumps({"path": code.shown, "t": time.time(), "by": by})
    workspace.control.facts.put(code.key, word)


async def trust_path(workspace: Workspace, path: Path, confirm: Confirm) -> TrustAnswer:
    """Trust an interpreter, a script, a folder of wheels, or the interpreter of an environment's
    folder, in its present content.

    Raises:
        UsageError: `BAD_ARGUMENT`, there is nothing to trust.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    place = user_path(path)
    if place.is_dir():
        inside = [place / name for name in _ENVIRONMENTS if (place / name).is_file()]
        place = inside[0] if inside else place
    code = code_at("", place, workspace.home)
    if code is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{place} is not a file, or a folder with an interpreter or wheels.",
            "Name the interpreter, script or folder that the spec names.",
            field="path",
        )
    text = f"Let agents' specs run {code.shown} on this machine (SHA-256 {code.digest[:16]}…)."
    trust(workspace, code, await confirm(Quote("trust", code.key, text)))
    return TrustAnswer(path=code.shown, sha256=code.digest)


def code_of(spec: TrainingSpec, home: Home) -> Iterator[Code]:
    """The code that a spec brings to this machine.

    Raises:
        PlanError: as `code_at`.
    """
    environment = spec.environment
    if isinstance(environment, EnvironmentSpec):
        if environment.python is not None and not _is_systems(environment.python):
            yield from _found(PYTHON_FIELD, _located(environment.python), home)
        if spec.host == LOCAL:
            for field in ("setup", "requirements", "wheels"):
                path = (getattr(environment, field) or "").removeprefix(ON_BOX)
                path = path.removeprefix(f"{LOCAL}:")
                yield from _found(f"environment.{field}", path or None, home)
    if spec.script is not None:
        yield from _found(PROGRAM_FIELD, spec.script.path.removeprefix(ON_BOX), home)
        words = [*spec.script.command, *(spec.script.resume or ())]
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()
        yield Code("script.command", f"the command {_shown(shlex.join(words))}", "", digest)
    if spec.host == LOCAL:
        reward = spec.method_args.get("reward_file")
        path = reward if isinstance(reward, str) else None
        yield from _found("method_args.reward_file", path, home)
        for name, value in spec.env.items():
            if not is_harmless(name, value):
                digest = hashlib.sha256(f"{name}={value}".encode()).hexdigest()
                yield Code(f"env.{name}", f"what {name}={_shown(value)} leads to", "", digest)


def _found(field: str, path: str | None, home: Home) -> Iterator[Code]:
    code = None if path is None else code_at(field, Path(path), home)
    if code is not None:
        yield code


def _shown(value: str) -> str:
    """A variable's value for a question; of a long one the beginning, and how long it is."""
    if len(value) <= _LONGEST_SHOWN:
        return repr(value)
    return f"{value[:_LONGEST_SHOWN]!r}… ({len(value)} characters)"


def _program_digest(path: Path, content: bytes | None) -> str | None:
    """Of a file; for an environment's interpreter, also of the file that names its packages."""
    own = _file_digest(path) if content is None else hashlib.sha256(content).hexdigest()
    if own is None:
        return None
    folder = path.absolute().parent
    beside = [_file_digest(place / _ENVIRONMENTS_FILE) for place in (folder, folder.parent)]
    if beside == [None, None]:
        return own
    return hashlib.sha256(json.dumps([own, *beside]).encode()).hexdigest()


def _file_digest(path: Path) -> str | None:
    """Of a regular file; None where there is none."""
    try:
        # Non-blocking: a pipe in its place would wait for a writer.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (FileNotFoundError, NotADirectoryError):
        return None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listing_digest(folder: Path) -> str | None:
    """Of the names, sizes and times of wheels."""
    wheels = sorted((wheel.name, wheel.stat()) for wheel in folder.glob("*.whl"))
    rows = [[name, status.st_size, status.st_mtime_ns] for name, status in wheels]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest() if rows else None


def _located(python: str) -> str | None:
    """The path of an interpreter that is named by one, or by its name alone."""
    return python if "/" in python else shutil.which(python)


def _is_systems(python: str) -> bool:
    """Whether an interpreter lies where the system, or the person who started this program, has
    its programs. It is judged by its folder as named, never by where that leads: Python finds an
    environment's packages beside the name."""
    path = _located(python)
    if path is None:
        return True
    if not os.path.isabs(path) or ".." in Path(path).parts:  # `..` after a link leads elsewhere
        return False
    folder = os.path.normpath(os.path.dirname(path))
    on_path = [
        place for place in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(place)
    ]
    own = [os.path.dirname(sys.executable), os.path.join(sys.base_prefix, "bin")]
    named = [os.path.normpath(place) for place in ("/usr/bin", "/usr/local/bin", *own, *on_path)]
    system_folders = {*named, *(os.path.realpath(place) for place in named)}
    return folder in system_folders and _PYTHON_NAME.fullmatch(os.path.basename(path)) is not None

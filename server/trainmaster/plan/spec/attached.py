"""Reads the files of this machine that a spec names and that are sent with the run."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from trainer_runtime.core.files.protected import open_unprotected
from trainer_runtime.core.files.regular import read_opened
from trainmaster.errors.errors import SpecError
from trainmaster.plan.fields.compute import EnvironmentSpec
from trainmaster.plan.fields.document import TrainingSpec

# By field: what it is called in the run's folder.
_NAMES = {"requirements": "requirements-extra.txt", "setup": "setup.sh"}
_REWARD, REWARD_NAME, _FUNCTIONS = "reward_file", "reward.py", "reward"
# By field of the spec.
ATTACHED_NAMES = {
    **{f"environment.{field}": name for field, name in _NAMES.items()},
    f"method_args.{_REWARD}": REWARD_NAME,
}
_MOST_BYTES = 256 << 10
_ELSEWHERE = re.compile(
    r"^\s*(-r|--requirement|-c|--constraint|-e|--editable|\.{0,2}/|~|\.\s*$)", re.MULTILINE
)
# A password in an address; `${NAME}`, which pip expands on the host, is allowed.
_PASSWORD = re.compile(r"://[^/\s@]*:(?!\$\{)[^/\s@]+@")


def read_attached(spec: TrainingSpec) -> dict[str, str]:
    """Their contents, by their names in the run's folder.

    Raises:
        SpecError: one can't be read, or holds what can't travel.
    """
    files = _reward(spec)
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec):
        return files
    for field, name in _NAMES.items():
        path = getattr(environment, field)
        if path is not None:
            files[name] = _read(Path(path), f"environment.{field}")
    if "requirements-extra.txt" in files:
        _refuse_what_stays_behind(files["requirements-extra.txt"])
    return files


def refuse_other_files(before: TrainingSpec, after: TrainingSpec) -> None:
    """Raises:
    SpecError: a resume names files, which travelled when the run was launched.
    """
    for field in (*_NAMES, "wheels"):
        value = getattr(after.environment, field, None)
        if value is not None and value != getattr(before.environment, field, None):
            raise SpecError(
                "INVALID_VALUE",
                f"`environment.{field}` can't change once the run exists.",
                "Launch a new run with it.",
                field=f"environment.{field}",
            )
    if before.method_args.get(_REWARD) != after.method_args.get(_REWARD):
        raise SpecError(
            "INVALID_VALUE",
            f"`method_args.{_REWARD}` can't change once the run exists.",
            "Launch a new run with it.",
            field=f"method_args.{_REWARD}",
        )


def _reward(spec: TrainingSpec) -> dict[str, str]:
    """The file with the functions that rate completions, which must define one.

    Raises:
        SpecError: it can't be read, is not Python, or has no such function.
    """
    path = spec.method_args.get(_REWARD)
    if path is None:
        return {}
    field = f"method_args.{_REWARD}"
    if not isinstance(path, str):
        raise SpecError(
            "WRONG_TYPE",
            f"`{field}` is not a path.",
            "Give a Python file of this machine.",
            field=field,
        )
    text = _read(Path(path), field)
    try:
        defined = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        reason = getattr(error, "msg", None) or str(error)
        raise SpecError(
            "INVALID_VALUE",
            f"`{field}` names {path}{line}, which is not valid Python: {reason}.",
            "Fix the file.",
            field=field,
        ) from None
    if not any(_rates(function) for function in defined):
        raise SpecError(
            "INVALID_VALUE",
            f"`{field}` names {path}, which defines no function that rates completions.",
            "Define at least one at the file's top level, named reward or reward_…, as "
            "`def reward(completions, **kwargs)`; it returns a number for each completion.",
            field=field,
        )
    return {REWARD_NAME: text}


def _rates(defined: ast.stmt) -> bool:
    if not isinstance(defined, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = defined.args
    named = {
        argument.arg
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }
    takes = "completions" in named and arguments.kwarg is not None
    return defined.name.startswith(_FUNCTIONS) and takes


def _read(path: Path, field: str) -> str:
    try:
        data = read_opened(open_unprotected(path, os.O_NONBLOCK), _MOST_BYTES)
        if len(data) > _MOST_BYTES:
            raise _unreadable(path, field, f"it is larger than {_MOST_BYTES >> 10} KiB")
        return data.decode()
    except UnicodeDecodeError:
        raise _unreadable(path, field, "it is not UTF-8 text") from None
    except OSError as error:
        raise _unreadable(path, field, error.strerror or str(error)) from None


def _unreadable(path: Path, field: str, problem: str) -> SpecError:
    return SpecError(
        "INVALID_VALUE",
        f"`{field}` names {path}, which can't be read: {problem}.",
        "Give the path of a text file on this machine.",
        field=field,
    )


def _refuse_what_stays_behind(text: str) -> None:
    match = _ELSEWHERE.search(text)
    if match is not None:
        raise SpecError(
            "INVALID_VALUE",
            f"The requirements hold {match.group().strip()!r}, which names another file of this "
            "machine; only the one file travels.",
            "List the packages themselves, and bring your own as wheels (environment.wheels).",
            field="environment.requirements",
        )
    if _PASSWORD.search(text):
        raise SpecError(
            "SECRET_IN_SPEC",
            "The requirements hold an address with a password, which would be stored in the run's "
            "folder.",
            "Put it into pip's configuration on the host, or write ${NAME} for it and list NAME "
            "under secrets.",
            field="environment.requirements",
        )

"""Finds an interpreter of this machine that can read checkpoints: one whose PyTorch opens pickles
safely."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from trainer_runtime.core.environment.pickle_safety import opens_pickles_safely
from trainer_runtime.host.environment.interpreters import candidates, probe_interpreter


def become_reader(arguments: list[str], cache: Path | None) -> None:
    """Continues with the same arguments in an interpreter that has a safe PyTorch, if this one has
    none; returns where it has, or no other one does.

    `cache`: where environments were built; None: no other interpreter is searched.
    """
    if cache is None or _is_safe(_own_torch()):
        return
    for name in _others(cache):
        interpreter, _ = probe_interpreter(os.path.expanduser(name), os.environ, Path.cwd())
        if interpreter is not None and _is_safe(interpreter.torch):
            os.execv(interpreter.python, [interpreter.python, "-m", "trainer_runtime", *arguments])


def _own_torch() -> str | None:
    try:
        return version("torch") if find_spec("torch") is not None else None
    except PackageNotFoundError:
        return None


def _is_safe(torch_version: str | None) -> bool:
    return torch_version is not None and opens_pickles_safely(torch_version)


def _others(cache: Path) -> Iterator[str]:
    yield from candidates(os.environ, own_first=False)
    yield from map(str, sorted(cache.glob("venvs/*/bin/python")))

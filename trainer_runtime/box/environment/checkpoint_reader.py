"""Finds an interpreter of this machine that can read checkpoints: one that has PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainer_runtime.box.environment.interpreters import candidates, probe_interpreter


def become_reader(arguments: list[str], cache: Path | None) -> None:
    """Continues with the same arguments in an interpreter that has PyTorch, if this one has none;
    returns where it has, or nobody does.

    `cache`: where environments were built; None: no other interpreter is searched.
    """
    if find_spec("torch") is not None or cache is None:
        return
    for name in _others(cache):
        found, _ = probe_interpreter(os.path.expanduser(name), os.environ, Path.cwd())
        if found is not None and found.torch is not None:
            os.execv(found.python, [found.python, "-m", "trainer_runtime", *arguments])


def _others(cache: Path) -> Iterator[str]:
    yield from candidates(os.environ, own_first=False)
    yield from map(str, sorted(cache.glob("venvs/*/bin/python")))

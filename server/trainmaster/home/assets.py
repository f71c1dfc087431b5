"""Finds the files that ship with Trainmaster: templates, skills, and the runtime of hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import trainer_runtime
from trainmaster.errors.errors import InternalError

_PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout this file is <root>/server/trainmaster/home/assets.py.
_CHECKOUT = _PACKAGE.parent.parent


@dataclass(frozen=True, slots=True)
class Assets:
    """Folders that bundles are made from, and the skills for agents. `runtime` is the
    `trainer_runtime` package."""

    templates: Path
    skills: Path
    runtime: Path


def find_assets() -> Assets:
    """The assets beside the installed package, or those of the checkout.

    Raises:
        InternalError: they are at neither place; the installation is broken.
    """
    runtime = Path(trainer_runtime.__file__).resolve().parent
    return Assets(templates=_folder("templates"), skills=_folder("skills"), runtime=runtime)


def read_package(package: Path, *suffixes: str) -> dict[str, bytes]:
    """The files of a package with these suffixes, by their paths from the folder that it is in."""
    # Without `Path`, which costs more than reading: there are half a thousand.
    beside = f"{package.parent}/"
    files = []
    for place, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        files += [f"{place}/{name}".removeprefix(beside) for name in names]
    chosen = sorted((name for name in files if name.endswith(suffixes)), key=lambda n: n.split("/"))
    return {name: _read(f"{beside}{name}") for name in chosen}


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _folder(name: str) -> Path:
    for parent in (_PACKAGE, _CHECKOUT):
        if (parent / name).is_dir():
            return parent / name
    raise InternalError(
        "INTERNAL",
        f"The folder {name!r} is neither beside {_PACKAGE} nor in a checkout.",
        "Install Trainmaster again.",
    )

"""Paths that a folder's class names once."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class _HasRoot(Protocol):
    @property
    def root(self) -> Path:
        """The folder."""


class Below:
    """An attribute of a class with a `root`: the path of this name, part by part, below it."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, folder: _HasRoot, kind: object = None) -> Path:
        return folder.root.joinpath(*self._parts)

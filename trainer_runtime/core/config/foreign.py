"""Trainings that others started: watched as they run, or continued from what they saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import JsonRecord


@dataclass(frozen=True, slots=True)
class AdoptedConfig(JsonRecord):
    """The checkpoint that a run begins with: `path` below `folder`, of step `step`.

    `stamp` shows whether it changed since.
    """

    step: int
    folder: str = ""
    path: str = ""
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class PaneConfig(JsonRecord):
    """A pane of `tmux` or a window of `screen` (`program`); `server` is the socket of tmux."""

    program: str
    name: str
    server: str | None


@dataclass(frozen=True, slots=True)
class AttachedConfig(JsonRecord):
    """A training that is only watched: by its log at `path`, or by a `pane`.

    It is read from byte `begin` on, or as `origin` says (`start`, `end`), and has ended when none
    of `processes` lives and nothing was written for `ends_after_s` seconds. `pattern`: the shape
    of its lines, where it was taught.
    """

    path: str | None
    pane: PaneConfig | None
    origin: str | None = field(metadata={"key": "from"})
    begin: int = 0
    processes: tuple[Mapping[str, object], ...] = ()
    ends_after_s: float = 0.0
    pattern: str | None = None

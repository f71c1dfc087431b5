"""Trainings that others started: watched as they run, or continued from what they saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class AdoptedConfig:
    """The checkpoint that a run begins with: `path` below `folder`, of step `step`.

    `stamp` shows whether it changed since.
    """

    folder: str
    path: str
    step: int
    stamp: str

    @classmethod
    def of(cls, fields: Fields) -> AdoptedConfig:
        return cls(
            folder=fields.text("folder", ""),
            path=fields.text("path", ""),
            step=fields.integer("step"),
            stamp=fields.text("stamp", ""),
        )


@dataclass(frozen=True, slots=True)
class PaneConfig:
    """A pane of `tmux` or a window of `screen` (`program`); `server` is the socket of tmux."""

    program: str
    name: str
    server: str | None

    @classmethod
    def of(cls, fields: Fields) -> PaneConfig:
        return cls(fields.text("program"), fields.text("name"), fields.find_text("server"))


@dataclass(frozen=True, slots=True)
class AttachedConfig:
    """A training that is only watched: by its log at `path`, or by a `pane`.

    It is read from byte `begin` on, or as `origin` says (`start`, `end`), and has ended when none
    of `processes` lives and nothing was written for `ends_after_s` seconds. `pattern`: the shape
    of its lines, where it was taught.
    """

    path: str | None
    pane: PaneConfig | None
    origin: str | None
    begin: int
    processes: tuple[Mapping[str, object], ...]
    ends_after_s: float
    pattern: str | None

    @classmethod
    def of(cls, fields: Fields) -> AttachedConfig:
        return cls(
            path=fields.find_text("path"),
            pane=fields.part("pane", PaneConfig.of),
            origin=fields.find_text("from"),
            begin=fields.integer("begin", 0),
            processes=tuple(one.values for one in fields.sections("processes")),
            ends_after_s=fields.number("ends_after_s", 0.0),
            pattern=fields.find_text("pattern"),
        )

"""A program that is run as it is: its folder, its command, and what it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import JsonRecord

# What `{name}` in a program's words stands for, besides `{data}` and `{data.NAME}`.
PLACEHOLDERS = (
    *("gpus", "processes", "run_dir", "run_id", "seed", "checkpoint", "step"),
    *("nodes", "node_rank", "master_addr", "master_port"),
)


@dataclass(frozen=True, slots=True)
class SavesConfig(JsonRecord):
    """The program's own checkpoints: `path` is a pattern below its folder, `step` an expression
    whose first group is the step. `keep_latest` None: none of the program's own is removed."""

    path: str
    step: str | None
    keep_latest: int | None

    @property
    def is_one_file(self) -> bool:
        """Whether every save replaces the one before, under one name."""
        return not any(letter in self.path for letter in "*?[")


@dataclass(frozen=True, slots=True)
class ScriptConfig(JsonRecord):
    """The program of a run with `framework: script`.

    `folder`: where it runs; `code` below the run's folder, or an absolute path of the host, where
    it is run in place. `source`: the folder that `code` is copied from, with the files that
    `code.json` of the run's folder lists. `resume`: words that are appended to continue, empty
    where the program reads the variables; None: it starts over. `python`: an interpreter whose
    folder comes first on the search path. `data`: paths of what the program reads, by the names of
    the sources; relative ones are below the run's folder. `pattern`: the shape of the log's lines,
    where it was taught. `elastic`: another number of processes can resume its checkpoints.
    """

    folder: str = "code"
    source: str | None = None
    command: tuple[str, ...] = ()
    resume: tuple[str, ...] | None = None
    saves: SavesConfig | None = field(default=None, metadata={"key": "checkpoints"})
    final: str | None = None
    stop_signal: str = "TERM"
    python: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    elastic: bool = False

"""A program that is run as it is: its folder, its command, and what it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields

# What `{name}` in a program's words stands for, besides `{data}` and `{data.NAME}`.
PLACEHOLDERS = (
    *("gpus", "processes", "run_dir", "run_id", "seed", "checkpoint", "step"),
    *("nodes", "node_rank", "master_addr", "master_port"),
)


@dataclass(frozen=True, slots=True)
class SavesConfig:
    """The program's own checkpoints: `path` is a pattern below its folder, `step` an expression
    whose first group is the step. `keep_latest` None: none of the program's own is removed."""

    path: str
    step: str | None
    keep_latest: int | None

    @classmethod
    def of(cls, fields: Fields) -> SavesConfig:
        return cls(
            path=fields.text("path"),
            step=fields.find_text("step"),
            keep_latest=fields.find_integer("keep_latest"),
        )

    @property
    def is_one_file(self) -> bool:
        """Whether every save replaces the one before, under one name."""
        return not any(letter in self.path for letter in "*?[")


@dataclass(frozen=True, slots=True)
class ScriptConfig:
    """The program of a run with `framework: script`.

    `folder`: where it runs; `code` below the run's folder, or an absolute path of the host, where
    it is run in place. `source`: the folder that `code` is copied from, with the files that
    `code.json` of the run's folder lists. `resume`: words that are appended to continue, empty
    where the program reads the variables; None: it starts over. `python`: an interpreter whose
    folder comes first on the search path. `data`: paths of what the program reads, by the names of
    the sources; relative ones are below the run's folder. `pattern`: the shape of the log's lines,
    where it was taught. `elastic`: another number of processes can resume its checkpoints.
    """

    folder: str
    source: str | None
    command: tuple[str, ...]
    resume: tuple[str, ...] | None
    saves: SavesConfig | None
    final: str | None
    stop_signal: str
    python: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    elastic: bool = False

    @classmethod
    def of(cls, fields: Fields) -> ScriptConfig:
        continues = fields.values.get("resume") is not None
        return cls(
            folder=fields.text("folder", "code"),
            source=fields.find_text("source"),
            command=fields.texts("command"),
            resume=fields.texts("resume") if continues else None,
            saves=fields.part("checkpoints", SavesConfig.of),
            final=fields.find_text("final"),
            stop_signal=fields.text("stop_signal", "TERM"),
            python=fields.find_text("python"),
            data=fields.text_map("data"),
            pattern=fields.find_text("pattern"),
            elastic=fields.flag("elastic", False),
        )

"""The contents of an output folder, and the checkpoint that a run starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.files.foreign_output import FoundCheckpoint, FoundOutput
from trainer_runtime.core.protocol.command import option
from trainmaster.answers.adopt import AdoptAnswer, OutputRow, SkippedOutput
from trainmaster.errors.errors import StateError, UsageError

_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Output:
    """`found` lies on `host`."""

    host: str
    found: FoundOutput

    @property
    def framework(self) -> str:
        return self.found.framework

    @property
    def folder(self) -> str:
        return self.found.folder

    @property
    def usable(self) -> list[FoundCheckpoint]:
        """The checkpoints that verify, oldest first; of one step in two places the later one."""
        by_step = {
            checkpoint.resume_step: checkpoint
            for checkpoint in sorted(self.found.checkpoints, key=lambda checkpoint: checkpoint.time)
            if checkpoint.problem is None
        }
        return [by_step[step] for step in sorted(by_step)]

    @property
    def newest_step(self) -> int | None:
        """The step that a run would start from; None where nothing verifies."""
        return max((checkpoint.resume_step for checkpoint in self.usable), default=None)

    def chosen(self, start: str) -> FoundCheckpoint:
        """The checkpoint of `latest` or of a step.

        Raises:
            StateError: `NO_CHECKPOINT`, with the reasons; `CHECKPOINT_DAMAGED` for the step's own.
            UsageError: `BAD_ARGUMENT`.
        """
        if start != "latest" and not (start.isascii() and start.isdigit()):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{start!r} is not a valid place to resume from.",
                "Use latest or a step.",
                field="from",
            )
        if not self.usable:
            raise StateError(
                "NO_CHECKPOINT",
                f"No checkpoint in {self.folder} can be resumed from: {self._reasons()}.",
                "Give a folder with a whole one. Weights alone can be trained on as model.path of "
                "a new run; where LitGPT's hold code, `litgpt convert_pretrained_checkpoint` "
                "there writes plain ones.",
            )
        if start == "latest":
            return self.usable[-1]
        return self._of_step(int(start))

    def answer(self, next_step: str, **fields: Any) -> AdoptAnswer:
        """The answer that describes the folder."""
        return AdoptAnswer(
            framework=self.framework,
            folder=self.folder,
            checkpoints=[_row(checkpoint) for checkpoint in self.found.checkpoints],
            skipped=[
                SkippedOutput(step=checkpoint.step, path=checkpoint.path, reason=checkpoint.problem)
                for checkpoint in self.found.checkpoints
                if checkpoint.problem is not None
            ],
            resume_from=fields.pop("resume_from", self.newest_step),
            host=self.host,
            notes=[*self.found.notes, *fields.pop("notes", ())] or None,
            next_step=next_step,
            **fields,
        )

    def _of_step(self, step: int) -> FoundCheckpoint:
        for checkpoint in self.usable:
            if checkpoint.step == step:
                return checkpoint
        for checkpoint in self.found.checkpoints:
            if checkpoint.step == step:
                raise StateError(
                    "CHECKPOINT_DAMAGED",
                    f"The checkpoint of step {step} can't be resumed from: {checkpoint.problem}.",
                    f"Begin with step {self.newest_step}, the newest that is whole.",
                )
        steps = ", ".join(str(checkpoint.step) for checkpoint in self.usable)
        raise StateError(
            "NO_CHECKPOINT",
            f"{self.folder} has no checkpoint of step {step}; there are: {steps}.",
            f"Leave {option('--from')} out for the newest.",
        )

    def _reasons(self) -> str:
        problems = [
            f"{checkpoint.path}: {checkpoint.problem}" for checkpoint in self.found.checkpoints
        ]
        more = len(problems) - _MOST_REASONS
        reasons = "; ".join(problems[-_MOST_REASONS:])
        return f"{reasons}; and {more} more" if more > 0 else reasons


def _row(checkpoint: FoundCheckpoint) -> OutputRow:
    return OutputRow(
        step=checkpoint.step,
        time=checkpoint.time,
        path=checkpoint.path,
        size_bytes=checkpoint.size_bytes,
        metrics=dict(checkpoint.metrics),
        verified=checkpoint.problem is None,
    )

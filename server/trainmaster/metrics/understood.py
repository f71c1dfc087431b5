"""Notes what was understood of a log: its form, its metrics, its steps, and whether it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from trainer_runtime.core.diagnosis.parse import Batch, Coverage, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.coverage import frequent_lines, with_numbers
from trainer_runtime.core.diagnosis.parse.pattern_draft import drafted
from trainer_runtime.core.diagnosis.parse.points import EPOCHS
from trainmaster.answers.metrics import LogCoverage

_MOST_KEYS, _SAMPLES = 4, 3
_FIRST = ("loss", "val_loss", "perplexity", "reward", "grad_norm", "lr")
# By the clock of its lines what a form of log is called, where that differs.
_FORMS = {
    "bar": "progress bar",
    "counted": "steps and losses",
    "epoch_steps": "epochs and steps",
    EPOCHS: "epochs alone",
    "key_value": "names and numbers",
    "pattern": "your pattern",
}


@dataclass(slots=True)
class Understood:
    """`first_step` to `last_step` in the order of the log; `target_step` where the log has it.
    `completed`: its closing lines were found. `counted`: lines have no step, and are counted."""

    first_step: int | None = None
    last_step: int | None = None
    target_step: int | None = None
    completed: bool = False
    counted: bool = False
    keys: list[str] = field(default_factory=list)

    def take(self, parsed: Parsed) -> None:
        """Note some lines."""
        for _, of_block in groupby(parsed.batches, key=_block):
            batches = sorted([item for item in of_block if len(item.steps)], key=_first_line)
            if not batches:
                continue
            first, last = batches[0], max(reversed(batches), key=_last_line)
            if self.first_step is None:
                self.first_step = int(first.steps[0])
            self.last_step = int(last.steps[-1])
            for batch in batches:
                self.keys += [key for key in batch.keys if key not in self.keys]
                self.counted = self.counted or batch.counted
        self.completed = self.completed or any(event.kind == "completed" for event in parsed.events)

    def finish(self, parser: LogParser) -> None:
        self.target_step = parser.total_steps

    @property
    def ended(self) -> bool | None:
        """Whether the training reached its end; None where the log does not say how far it goes."""
        if self.completed:
            return True
        if self.target_step is None or self.last_step is None:
            return None
        return self.last_step >= self.target_step

    def answer(self, coverage: Coverage, other_ranks: int = 0) -> LogCoverage:
        """As an answer holds it."""
        names = [_FORMS.get(form, form) for form in _by_lines(coverage)]
        samples = [] if self.keys else coverage.samples[:_SAMPLES]
        return LogCoverage(
            read_share=round(coverage.share, 4),
            form=", ".join(names[:2]) or None,
            keys=sorted(self.keys, key=_rank)[:_MOST_KEYS] or None,
            first_step=self.first_step,
            last_step=self.last_step,
            target_step=self.target_step,
            ended=self.ended,
            too_long=coverage.too_long or None,
            other_ranks=other_ranks or None,
            untrusted_samples=samples or None,
            untrusted_pattern=drafted(samples),
        )


def not_understood(text: bytes) -> LogCoverage | None:
    """Of a log without metrics: the most frequent lines, and a pattern; None without numbers."""
    coverage = Coverage(lines_with_numbers=with_numbers(text), samples=frequent_lines(text))
    return Understood().answer(coverage) if coverage.samples else None


def _block(batch: Batch) -> int:
    return id(batch.block)


def _first_line(batch: Batch) -> int:
    return batch.lines[0]


def _last_line(batch: Batch) -> int:
    return batch.lines[-1]


def _rank(key: str) -> int:
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _by_lines(coverage: Coverage) -> list[str]:
    """The forms of its lines, the most frequent first."""
    return sorted(coverage.forms, key=lambda form: -coverage.forms[form])

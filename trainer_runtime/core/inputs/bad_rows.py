"""Counts rows that can't be read, of which a share is skipped (`data.bad_rows`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.inputs.row_form import rows_of
from trainer_runtime.core.protocol.figures import number_text

# What the preparation of rows has counted of each source, in `noted_folder`.
COUNTS = ".counts.json"
# `{"text":""}` and the end of its line: no row takes less.
_SHORTEST_ROW_BYTES = 12
# Of the rows that planning reads; more is another format, not damage.
_MOST_OF_A_SAMPLE = 0.1


def noted_folder(config: RunConfig) -> Path:
    """Where the preparation notes what of a run's rows its method can't learn from."""
    kind = rows_of(config.framework, config.method)
    return config.data.folder / "left_out" / kind.replace(" ", "-")


@dataclass(slots=True)
class BadRows:
    """`share`: of all rows, how many may be bad. `first`: the place of the first, and why."""

    share: float
    rows: int = 0
    bad: int = 0
    first: str | None = None

    def add(self, problem: str | None) -> None:
        """Count a row; `problem`: what makes it a bad one."""
        self.rows += 1
        if problem is not None:
            self.bad += 1
            self.first = self.first or problem

    def refusal(self, left_bytes: float = 0, left_rows: int = 0) -> str | None:
        """Why there are too many, however many good rows the rest of the source may hold."""
        left = left_rows + left_bytes / _SHORTEST_ROW_BYTES
        if self.bad <= self.share * (self.rows + left):
            return None
        return self._said()

    def refusal_of_sample(self, all_rows: int) -> str | None:
        """The same where the rows are the first of about `all_rows`."""
        too_many = self.bad > self.share * max(self.rows, all_rows)
        if not self.bad or not (too_many or self.bad > _MOST_OF_A_SAMPLE * self.rows):
            return None
        return self._said()

    def report(self) -> str:
        """What was skipped."""
        return f"{self.bad:,} of {self.rows:,} rows skipped; the first: {self.first}"

    def _said(self) -> str:
        return (
            f"{self.first} ({self.bad:,} of the {self.rows:,} rows read can't be used, and "
            f"data.bad_rows allows {number_text(self.share)} of all)"
        )

"""Lines for readers of a kernel's log: the training's status once a minute, and its events."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.journal_lines import (
    AttemptEnded,
    AttemptRunning,
    AttemptSignalled,
    AttemptStarting,
    FindingReported,
    StateEntered,
    journal_line,
)
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode, number
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.files.files import LineReader
from trainer_runtime.host.files.layout import RunFolder

_OVER = (PlacementState.COMPLETED, PlacementState.FAILED, PlacementState.STOPPED)


class Account:
    """Reads the run's journal and its newest attempt's events, and puts them into words.

    Only what comes from closed lists is said, and numbers: no line of a log, no name.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._journal = LineReader(run.journal)
        self.record = Record()
        self._progress = Progress(0)
        self._events: LineReader | None = None
        self.news()  # of earlier sessions; those have reported it

    def news(self) -> list[str]:
        """What has happened since the last time, a line each."""
        lines = []
        for line in self._journal.read():
            try:
                event = decode(line)
                self.record.apply(event)
            except (ProtocolError, TransitionError):
                continue
            words = _words(event)
            if words is not None:
                lines.append(words)
        return lines

    def standing(self) -> str:
        """The training's present status."""
        self._read_events()
        progress = self._progress
        if progress.target_step is None:
            return f"Attempt {progress.attempt} is prepared" if progress.attempt else "Starting"
        left = progress.target_step - progress.step
        loss, pace = number(progress.last.get("loss")), progress.step_time_s
        saved = [step for step, checkpoint in progress.checkpoints.items() if checkpoint.verified]
        parts = [
            f"Step {progress.step} of {progress.target_step}",
            "" if loss is None else f"loss {number_text(loss)}",
            "" if pace is None else f"{number_text(pace)} s a step",
            "" if pace is None else f"about {spoken_duration(max(1.0, left * pace))} to go",
            f"newest checkpoint {max(saved)}" if saved else "",
        ]
        return ", ".join(part for part in parts if part)

    def _read_events(self) -> None:
        newest = self.record.current
        if newest is not None and newest.number != self._progress.attempt:
            self._progress = Progress(newest.number)
            self._events = LineReader(self._run.attempt(newest.number).events)
        for line in self._events.read() if self._events is not None else ():
            try:
                self._progress.apply(decode(line))
            except ProtocolError:
                continue


def _words(event: Event) -> str | None:
    """One event of the journal in words; None if it is of no interest."""
    line = journal_line(event)
    if isinstance(line, AttemptStarting):
        return f"Attempt {line.attempt} starts: {line.plan.why}"
    if isinstance(line, AttemptRunning):
        return f"Attempt {line.attempt} trains"
    if isinstance(line, AttemptSignalled):
        return f"Attempt {line.attempt} is to save and end: {line.why}"
    if isinstance(line, AttemptEnded):
        where = "" if line.last_step is None else f" at step {line.last_step}"
        return f"Attempt {line.attempt} ended{where}: {line.reason}"
    if isinstance(line, StateEntered) and line.state in _OVER:
        return f"The run is {line.state.value}: {line.reason}"
    if isinstance(line, FindingReported):
        return f"Found: {line.finding.code} ({line.finding.severity})"
    return None

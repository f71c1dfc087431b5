"""What a kernel's log says to people: how the training stands once a minute, and what happens."""

from __future__ import annotations

from typing import Any

from trainer_runtime.box.files.files import LineReader
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.core.protocol.duration import spoken_duration
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode, number
from trainer_runtime.core.protocol.progress import Progress


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
        self.news()  # of earlier sessions; those have told it

    def news(self) -> list[str]:
        """What has happened since the last time, a line each."""
        told = []
        for line in self._journal.read():
            try:
                event = decode(line)
                self.record.apply(event)
            except (ProtocolError, TransitionError):
                continue
            words = _words(event)
            if words is not None:
                told.append(words)
        return told

    def standing(self) -> str:
        """How the training stands now."""
        self._read_events()
        progress = self._progress
        if progress.target_step is None:
            return f"Attempt {progress.attempt} is prepared" if progress.attempt else "Starting"
        left = progress.target_step - progress.step
        loss, pace = number(progress.last.get("loss")), progress.step_time_s
        saved = [step for step, one in progress.checkpoints.items() if one.verified]
        parts = [
            f"Step {progress.step} of {progress.target_step}",
            "" if loss is None else f"loss {loss:.4f}",
            "" if pace is None else f"{pace:.3g} s a step",
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
    """One event of the journal in words; None for what nobody waits for."""
    say = _SAID.get(event["kind"])
    try:
        return None if say is None else say(event)
    except (KeyError, TypeError):
        return None


def _ended(event: Event) -> str:
    step = event.get("last_step")
    where = "" if step is None else f" at step {step}"
    return f"Attempt {event['attempt']} ended{where}: {event['reason']}"


def _state(event: Event) -> str | None:
    over = event["state"] in ("completed", "failed", "stopped")
    return f"The run is {event['state']}: {event['reason']}" if over else None


def _finding(event: Event) -> str:
    finding: dict[str, Any] = event["finding"]
    return f"Found: {finding['code']} ({finding['severity']})"


_SAID = {
    "attempt_starting": lambda event: f"Attempt {event['attempt']} starts: {event['why']}",
    "attempt_running": lambda event: f"Attempt {event['attempt']} trains",
    "attempt_signalled": lambda event: (
        f"Attempt {event['attempt']} is to save and end: {event['why']}"
    ),
    "attempt_ended": _ended,
    "state": _state,
    "finding": _finding,
}

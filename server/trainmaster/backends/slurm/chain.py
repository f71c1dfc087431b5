"""The chain of a run's jobs, as this machine remembers it: which have ended, and how. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainer_runtime.core.answers.slurm import TRAINMASTER, JobEnd, JobId, SubmitAnswer
from trainmaster.backends.launchers import JobState
from trainmaster.store.control.slurm import JobLine, JobNote, Questions

# How long after a job's end accounting is asked for it: a database that is down comes back.
_ASKED_FOR_S = 1800.0
# Until then it is asked often: usually it knows after seconds.
_SOON_S = 60.0
_CANCELLED = "CANCELLED"
# After a run's end, so often, and with so long a pause after the first, which then doubles.
_MOST_QUESTIONS, _PAUSE_S = 8, 4.0


def unsettled(lines: Iterable[JobLine]) -> list[JobId]:
    """The jobs that may be alive, or whose end is not known yet."""
    return [line.number for line in lines if not line.settled]


def is_soon_known(lines: Iterable[JobLine], now: float) -> bool:
    """Whether one has just ended, and it is not known how."""
    return any(
        line.gone_t is not None and not line.settled and now - line.gone_t < _SOON_S
        for line in lines
    )


def is_end_awaited(lines: Iterable[JobLine], asked: Questions | None) -> bool:
    """Whether an ended run's jobs are worth further questions."""
    return bool(unsettled(lines)) and (asked is None or asked.count < _MOST_QUESTIONS)


def is_end_due(lines: Iterable[JobLine], asked: Questions | None, now: float) -> bool:
    """Whether the next of these questions is due."""
    if not is_end_awaited(lines, asked):
        return False
    return asked is None or abs(now - asked.t) >= _PAUSE_S * 2.0 ** (asked.count - 1)


def after_submission(
    lines: Sequence[JobLine], note: JobNote, answer: SubmitAnswer, now: float
) -> list[JobLine]:
    """With the job that there is now, and with what the answer says of it and of another one that
    the submission took from the queue."""
    cancelled, avoided = answer.cancelled, ", ".join(answer.avoided)
    now_there = _with_job(lines, note)
    if avoided:
        now_there[-1] = replace(now_there[-1], avoided=avoided)
    if cancelled is None:
        return now_there
    line = JobLine(cancelled, _CANCELLED, TRAINMASTER, end_t=now, settled=True)
    return [*(earlier_line for earlier_line in now_there if earlier_line.number != cancelled), line]


def changed_lines(
    recorded: Mapping[str, Sequence[JobLine]],
    notes: Mapping[str, JobNote],
    ends: Iterable[tuple[str, JobEnd]],
    now: float,
) -> dict[str, list[JobLine]]:
    """Of the runs for which an answer brought something new, all jobs."""
    updated = {run_id: list(lines) for run_id, lines in recorded.items()}
    for run_id, note in notes.items():
        updated[run_id] = _with_job(updated[run_id], note)
    for run_id, end in ends:
        updated[run_id] = [
            _ended(line, end, now) if line.number == end.job_id else line
            for line in updated[run_id]
        ]
    return {run_id: lines for run_id, lines in updated.items() if lines != list(recorded[run_id])}


def _with_job(lines: Sequence[JobLine], note: JobNote) -> list[JobLine]:
    """With the job of a note, where it is a new one."""
    is_known = any(line.number == note.number for line in lines)
    if note.number is None or note.state == JobState.ABSENT.value or is_known:
        return list(lines)
    return [*lines, JobLine(note.number)]


def _ended(line: JobLine, end: JobEnd, now: float) -> JobLine:
    gone_t = now if line.gone_t is None else line.gone_t
    return replace(
        line,
        word=end.word or line.word,
        by=end.by or line.by,
        begin_t=end.begin_t if end.begin_t is not None else line.begin_t,
        end_t=end.end_t if end.end_t is not None else line.end_t,
        settled=end.is_final or now - gone_t > _ASKED_FOR_S,
        gone_t=gone_t,
    )

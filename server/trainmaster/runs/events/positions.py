"""How far a caller has seen a run's events, and the cursors that say so.

`w1.…` is the position in one run, `w2.…` those in several, `o1.…` a time: what a run reported until
then, by its host's clock, counts as seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.errors.errors import UsageError
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_OF_ONE = re.compile(r"w1\.(\d{1,9})\.(-?\d{1,15})\.(\d{1,9})\.(-?\d{1,15})")
_ENTRY = r"[a-z2-7]{6}(?:-\d{1,15}){4}"
_OF_MANY = re.compile(rf"w2(?:\.{_ENTRY})*")
_OF_TIME = re.compile(r"o1\.(\d{1,14})")
_LONGEST = 64_000
_KEY_LENGTH = 6  # of the random end of a run's id


@dataclass(frozen=True, slots=True)
class Position:
    """The newest events that were seen: of the journal, and of the newest attempt."""

    placement: int
    journal_seq: int
    attempt: int
    seq: int

    def covers(self, event: StoredEvent) -> bool:
        """Whether the event is at or before this position."""
        seq = event.event.seq
        if event.attempt == 0:
            return seq <= self.journal_seq
        return (event.attempt, seq) <= (self.attempt, self.seq)

    def past(self, event: StoredEvent) -> Position:
        """The position after this and that event."""
        seq = event.event.seq
        if event.attempt == 0:
            return replace(self, journal_seq=max(self.journal_seq, seq))
        attempt, seq = max((self.attempt, self.seq), (event.attempt, seq))
        return replace(self, attempt=attempt, seq=seq)

    def __str__(self) -> str:
        return f"w1.{self.placement}.{self.journal_seq}.{self.attempt}.{self.seq}"


BEGINNING = Position(1, -1, 0, -1)


def newest(view: RunView) -> Position:
    """The position after everything that `view` shows."""
    attempt, seq = 0, -1
    if view.attempts:
        attempt, seq = view.attempts[-1].attempt, view.attempts[-1].last_seq
    return Position(view.run.placement, view.record.last_seq, attempt, seq)


def position_of(cursor: str) -> Position | None:
    """The position that a cursor of one run names; None for any other text."""
    match = _OF_ONE.fullmatch(cursor)
    return None if match is None else Position(*(int(part) for part in match.groups()))


def cursor_of(view: RunView) -> str:
    """The cursor after everything that `view` shows."""
    return str(newest(view))


def cursor_of_many(positions: Mapping[str, Position]) -> str:
    """One cursor for several runs."""
    entries = [
        f"{_key(run)}-{at.placement}-{at.journal_seq + 1}-{at.attempt}-{at.seq + 1}"
        for run, at in positions.items()
    ]
    return ".".join(["w2", *entries])


def cursor_of_time(t: float) -> str:
    """The cursor of a Unix time."""
    return f"o1.{max(0, int(t * 1000))}"


def time_of(cursor: str) -> float:
    """The Unix time of a cursor of `overview`.

    Raises:
        UsageError: `CURSOR_INVALID`.
    """
    match = _OF_TIME.fullmatch(cursor)
    if match is None:
        raise _invalid(cursor, "overview")
    return int(match[1]) / 1000


def runs_named(workspace: Workspace, cursor: str) -> list[str]:
    """The ids of the runs that the cursor has positions in; for one of a time, of those that were
    launched since: they may have ended by now."""
    if _OF_TIME.fullmatch(cursor):
        since_t = time_of(cursor)
        return [run.run_id for run in workspace.control.runs() if run.created_t >= since_t]
    if not _OF_MANY.fullmatch(cursor[:_LONGEST]):
        return []
    keys = {entry.partition("-")[0] for entry in cursor.split(".")[1:]}
    return [run.run_id for run in workspace.control.runs() if _key(run.run_id) in keys]


def positions_after(
    workspace: Workspace, runs: Sequence[str], cursor: str | None
) -> dict[str, Position]:
    """Where each of the runs, by id, is to be read from: after what is here now without a cursor;
    from the beginning for a run that the cursor doesn't know.

    Raises:
        UsageError: `CURSOR_INVALID`; also for the cursor of one run given for several.
    """
    if cursor is None:
        return {run: newest(load_view(workspace, run)) for run in runs}
    positions = _known(workspace, runs, cursor)
    return {run: positions.get(run, BEGINNING) for run in runs}


def _known(workspace: Workspace, runs: Sequence[str], cursor: str) -> dict[str, Position]:
    if len(runs) == 1 and (position := position_of(cursor)) is not None:
        return {runs[0]: position}
    if _OF_TIME.fullmatch(cursor):
        return {run: _position_at(workspace, run, time_of(cursor)) for run in runs}
    if len(cursor) > _LONGEST or not _OF_MANY.fullmatch(cursor):
        raise _invalid(cursor, "wait")
    by_key = {}
    for entry in cursor.split(".")[1:]:
        key, placement, journal, attempt, seq = entry.split("-")
        by_key[key] = Position(int(placement), int(journal) - 1, int(attempt), int(seq) - 1)
    return {run: by_key[_key(run)] for run in runs if _key(run) in by_key}


def _position_at(workspace: Workspace, run: str, t: float) -> Position:
    placement = workspace.control.run(run).placement
    return Position(placement, *workspace.metrics.seen_by(run, placement, t))


def _key(run: str) -> str:
    return run[-_KEY_LENGTH:]


def _invalid(cursor: str, command: str) -> UsageError:
    return UsageError(
        "CURSOR_INVALID",
        f"{cursor[:80]!r} is not a cursor of `{command}` for these runs.",
        "Pass the cursor of the last answer, or none.",
        field="cursor",
    )

"""Lists runs, newest first, a page at a time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress

from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainmaster.answers.run_list import RunRow, RunsAnswer
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.store.control.run_list import End, ListedRun
from trainmaster.store.failures import Failures
from trainmaster.store.run import Run
from trainmaster.sync.lost_runs import lost_runs
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.run_view import end_of, load_view
from trainmaster.sync.workspace import Workspace

_READ_AT_A_TIME = 64
_READ_WITHIN_S = 5.0
_COMMIT = re.compile(r"[0-9a-f]{4,64}")
_ENDED = frozenset(state.value for state in ENDED_RUNS)


async def list_runs(
    workspace: Workspace,
    *,
    state: str | None = None,
    label: str | None = None,
    code: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    within_s: float = _READ_WITHIN_S,
) -> RunsAnswer:
    """The newest runs; only those in a state, with a label (`key` or `key=value`), or of a program
    at a commit (`code`, its beginning), if given.

    `cursor`, from an earlier answer: only those after its last run. Of hosts that take longer than
    `within_s` it says what is on record. What can't be read of one is
    named in `failed`, and takes no other with it.

    Raises:
        UsageError: `BAD_ARGUMENT` for a state that doesn't exist, or no commit; `CURSOR_INVALID`.
    """
    _check_state(state)
    _check_commit(code)
    after = None if cursor is None else _last_listed(workspace, cursor)
    lacking = incomplete(workspace) or lost_runs(workspace)
    failures = Failures(workspace.home)
    if hosts := workspace.control.hosts_of_open_runs():
        from trainmaster.sync.follow import read_hosts  # ended runs need nothing of what follows

        await read_hosts(workspace, hosts, failures, within_s)
    rows: list[RunRow] = []
    ends: dict[str, End] = {}
    for run in _newest(workspace, after, state=state, label=label, code=code, limit=limit):
        with failures.caught(run.run_id):
            row = _row(workspace, run, ends)
            if state is None or row.state == state:
                rows.append(row)
        if len(rows) > limit:
            break
    if ends:
        with suppress(sqlite3.OperationalError):  # a full disk: they are worked out again
            workspace.control.list.record_ends(ends)
    more = len(rows) > limit
    return RunsAnswer(
        runs=rows[:limit],
        more=more or None,
        cursor=rows[limit - 1].run_id if more else None,
        failed=failures.rows,
        incomplete=lacking,
    )


def _check_state(state: str | None) -> None:
    if state is not None and state not in {item.value for item in RunState}:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{state!r} is not a state of a run.",
            f"Use one of {', '.join(item.value for item in RunState)}.",
            field="state",
        )


def _check_commit(code: str | None) -> None:
    if code is not None and not _COMMIT.fullmatch(code):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{code[:80]!r} is not the beginning of a commit.",
            "Give at least 4 letters and digits of it, as `git log` shows them.",
            field="code",
        )


def _last_listed(workspace: Workspace, cursor: str) -> Run:
    try:
        run = workspace.control.run(cursor)
        if run.run_id == cursor:
            return run
    except StateError:
        pass
    raise UsageError(
        "CURSOR_INVALID",
        f"{cursor[:80]!r} is not the cursor of a list of runs.",
        "Pass the cursor of the last answer, or none.",
        field="cursor",
    )


def _newest(
    workspace: Workspace,
    after: Run | None,
    *,
    state: str | None,
    label: str | None,
    code: str | None,
    limit: int,
) -> Iterator[ListedRun]:
    """The runs that may be in the state, read as they are needed. A closed run has ended."""
    ended = state if state in _ENDED else None
    only_open = state is not None and ended is None
    size = min(limit + 1, _READ_AT_A_TIME)
    last: Run | ListedRun | None = after
    while True:
        page = workspace.control.list.newest(
            size, after=last, only_open=only_open, ended=ended, label=label, code=code
        )
        yield from page
        if len(page) < size:
            return
        last, size = page[-1], _READ_AT_A_TIME


def _row(workspace: Workspace, run: ListedRun, ends: dict[str, End]) -> RunRow:
    """The row of a run; an end that had to be worked out is added to `ends`."""
    if run.end is not None:
        end, quarantined = run.end, None
        state, step, target_step = end.state, end.step, end.target_step
    else:
        view = load_view(workspace, run.run_id)
        state, step, target_step = view.state.value, view.step, view.target_step
        quarantined = True if view.refused.quarantine is not None else None
        if (found := end_of(view)) is not None:
            ends[run.run_id] = found
    return RunRow(
        run_id=run.run_id,
        name=run.name,
        state=state,  # type: ignore[arg-type]
        step=step,
        target_step=target_step,
        host=run.host,
        labels=dict(run.labels),
        quarantined=quarantined,
    )

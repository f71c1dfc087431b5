"""Lists runs, newest first, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainmaster.backends import KAGGLE
from trainmaster.store.failures import Failures
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import RunRow, RunsAnswer
from trainmaster.words.errors import StateError, UsageError

_READ_AT_A_TIME = 64
_ENDED = frozenset(state.value for state in ENDED_RUNS)
_STATE_OF = {**{state: state for state in _ENDED}, "superseded": "stopped"}


async def list_runs(
    workspace: Workspace,
    *,
    state: str | None = None,
    label: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> RunsAnswer:
    """The newest runs; only those in a state, or with a label (`key` or `key=value`), if given.

    `cursor`, from an earlier answer: only those after its last run. What can't be read of one is
    named in `failed`, and takes no other with it.

    Raises:
        UsageError: `BAD_ARGUMENT` for a state that doesn't exist; `CURSOR_INVALID`.
    """
    _check_state(state)
    after = None if cursor is None else _last_listed(workspace, cursor)
    failures = Failures(workspace.home)
    for host in workspace.control.hosts_of_open_runs():
        with failures.caught(host):
            await catch_up(workspace, host)
    rows: list[RunRow] = []
    for run in _newest(workspace, after, state=state, label=label, limit=limit):
        with failures.caught(run.run_id):
            view = load_view(workspace, run.run_id)
            if state is None or view.state.value == state:
                rows.append(_row(view))
        if len(rows) > limit:
            last = rows[limit - 1].run_id
            return RunsAnswer(runs=rows[:limit], more=True, cursor=last, failed=failures.rows)
    return RunsAnswer(runs=rows, failed=failures.rows)


def _check_state(state: str | None) -> None:
    if state is not None and state not in {item.value for item in RunState}:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{state!r} is not a state of a run.",
            f"Use one of {', '.join(item.value for item in RunState)}.",
            field="state",
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
    workspace: Workspace, after: Run | None, *, state: str | None, label: str | None, limit: int
) -> Iterator[Run]:
    """The runs that may be in the state, read as they are needed. A closed run has ended."""
    only_open = state is not None and state not in _ENDED
    size = min(limit + 1, _READ_AT_A_TIME)
    while True:
        page = workspace.control.newest_runs(size, after=after, only_open=only_open, label=label)
        ended = _recorded_states(workspace, page) if state in _ENDED else {}
        yield from (run for run in page if not run.closed or ended.get(run.run_id, state) == state)
        if len(page) < size:
            return
        after, size = page[-1], _READ_AT_A_TIME


def _recorded_states(workspace: Workspace, runs: Sequence[Run]) -> dict[str, str]:
    """The states of closed runs, where their records alone say them."""
    ended = [(run.run_id, run.placement) for run in runs if run.closed and run.host != KAGGLE]
    found = workspace.metrics.recorded_states(ended)
    return {name: _STATE_OF[state] for name, state in found.items() if state in _STATE_OF}


def _row(view: RunView) -> RunRow:
    return RunRow(
        run_id=view.run.run_id,
        name=view.run.name,
        state=view.state.value,
        step=view.step,
        target_step=view.target_step,
        host=view.run.host,
        labels=dict(view.run.labels),
        quarantined=True if view.refused.quarantine is not None else None,
    )

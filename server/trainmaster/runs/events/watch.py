"""Runs side by side, for somebody who watches them. Only reads."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.status.status_page import loss_curve
from trainmaster.answers.watch import WatchAnswer, WatchRow
from trainmaster.runs.status.cost import cost_of
from trainmaster.runs.status.status import status_of
from trainmaster.store.failures import Failures
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# Ended ones fill up what open ones leave.
_FEW = 10
_CURVE_VALUES = 12


class Watch:
    """The rows of runs, as often as they are asked for; what has ended is read once."""

    def __init__(self, workspace: Workspace, runs: Sequence[str] = (), few: int = _FEW) -> None:
        """`few`: as many runs are listed where no `runs` are named, if not more are open.

        Raises: StateError: `RUN_NOT_FOUND`.
        """
        self._workspace = workspace
        self._few = few
        self._chosen = [workspace.control.run(run).run_id for run in runs]
        self._ended: dict[str, WatchRow] = {}

    @property
    def hosts(self) -> list[str]:
        """Where there may be news."""
        control = self._workspace.control
        if not self._chosen:
            return control.hosts_of_open_runs()
        chosen = [control.run(run) for run in self._chosen]
        return list(dict.fromkeys(run.host for run in chosen if not run.closed))

    def rows(self) -> WatchAnswer:
        """From what is on record now."""
        lacking = incomplete(self._workspace)
        failures, rows = Failures(self._workspace.home), []
        for run_id, closed in self._runs():
            row = self._ended.get(run_id) if closed else None
            with failures.caught(run_id):
                row = row or self._row(run_id)
            if row is not None:
                rows.append(row)
                if closed and lacking is None:
                    self._ended[run_id] = row
        is_any = any(shown.state not in ("completed", "failed", "stopped") for shown in rows)
        open_now = [shown for shown in self._workspace.control.instances.all() if shown.open]
        return WatchAnswer(
            runs=rows,
            usd_per_h=round(sum(shown.usd_per_h for shown in open_now), 2) if open_now else None,
            next_step=command("monitor") if is_any else command("launch", "SPEC"),
            incomplete=lacking,
        )

    def _runs(self) -> list[tuple[str, bool]]:
        """By id, with whether it is closed: those asked for, else the open ones and a few more."""
        control = self._workspace.control
        if self._chosen:
            return [(run, control.run(run).closed) for run in self._chosen]
        closed_by_run = {run.run_id: False for run in control.runs(only_open=True)}
        for listed in control.list.newest(self._few):
            if len(closed_by_run) < self._few or not listed.closed:
                closed_by_run.setdefault(listed.run_id, listed.closed)
        return list(closed_by_run.items())

    def _row(self, run_id: str) -> WatchRow:
        view = load_view(self._workspace, run_id)
        status, cost = status_of(view), cost_of(self._workspace, view)
        return WatchRow(
            run_id=run_id,
            name=view.run.name,
            state=status.state,
            host=view.run.host,
            step=status.step,
            target_step=status.target_step,
            loss=status.metrics.get("loss", status.metrics.get("val_loss")),
            curve=_curve(view),
            tokens_per_s=None if view.ended else status.metrics.get("tokens_per_s"),
            eta_s=status.eta_s,
            findings=[finding.code for finding in status.findings],
            usd=None if cost is None else cost.usd,
        )


def _curve(view: RunView) -> list[float]:
    """The loss over the whole run, to four digits."""
    return [
        rounded(value, 4) for value in loss_curve(view.attempts, _CURVE_VALUES) if value is not None
    ]

"""Lists a run's checkpoints, and verifies them where that is asked. Only reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainer_runtime.core.config.early_stopping import STATE_PREFIX
from trainer_runtime.core.decoding import only_numbers
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.runs import CheckpointRow, CheckpointsAnswer, SkippedCheckpoint
from trainmaster.backends import RunFiles
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


async def list_checkpoints(
    workspace: Workspace, run: str, *, verify: bool = False
) -> CheckpointsAnswer:
    """The existing checkpoints, and the one that a resume would take.

    `verify` reads every byte of them again, on the host; it moves nothing. Of an attached training
    only what its log reports is known.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        HostError: the host can't be reached, or could not read them.
    """
    view = await refresh(workspace, run)
    answer = checkpoints_of(view)
    if view.run.is_attached:
        return answer
    if view.run.cleaned:
        there = await workspace.backend(view.run.host).contents(view.run.run_id)
        kept = [row for row in answer.checkpoints if row.path in there]
        return CheckpointsAnswer(checkpoints=kept, skipped=[], resume_from=None)
    if not verify:
        return answer
    files = RunFiles.of(workspace.backend(view.run.host), run_id=view.run.run_id)
    problems = {
        check.step: check.problems for check in await files.verify_checkpoints(view.run.run_id)
    }
    if not _steps(answer) <= problems.keys():  # a run that trains may have pruned one meanwhile
        now = checkpoints_of(await refresh(workspace, run))
        answer = _only(answer, {*problems, *_steps(now)})
    return _verified(answer, problems)


def checkpoints_of(view: RunView) -> CheckpointsAnswer:
    """The existing checkpoints by the run's records; which of a cleaned run are kept, only its
    host knows."""
    index = view.index.to_dict()
    if view.run.is_attached:
        return CheckpointsAnswer(
            checkpoints=[_checkpoint_row(entry) for entry in index["checkpoints"]],
            skipped=[],
            resume_from=None,
            not_ours=True,
            unreachable=view.unreachable,
        )
    return CheckpointsAnswer(
        checkpoints=[_checkpoint_row(entry) for entry in index["checkpoints"]],
        skipped=[_skipped(item["step"], item["reason"]) for item in index["skipped"]],
        resume_from=index["resume_from"],
        superseded=[_checkpoint_row(entry) for entry in index["superseded"]] or None,
        unreachable=view.unreachable,
        incomplete=view.incomplete,
    )


def _steps(answer: CheckpointsAnswer) -> set[int]:
    return {row.step for row in (*answer.checkpoints, *(answer.superseded or ()))}


def _only(answer: CheckpointsAnswer, steps: Collection[int]) -> CheckpointsAnswer:
    kept = [row for row in answer.checkpoints if row.step in steps]
    left = [row for row in answer.superseded or () if row.step in steps]
    return answer.model_copy(update={"checkpoints": kept, "superseded": left or None})


def _checkpoint_row(entry: dict[str, Any]) -> CheckpointRow:
    row = {key: entry[key] for key in entry if key != "attempt"}
    metrics = only_numbers(entry["metrics"])
    shown_metrics = {key: metrics[key] for key in metrics if not key.startswith(STATE_PREFIX)}
    return CheckpointRow(**{**row, "metrics": shown_metrics})


def _skipped(step: int, detail: str | None) -> SkippedCheckpoint:
    said = None if detail is None else shown(detail.encode(errors="replace"))
    return SkippedCheckpoint(step=step, untrusted_detail=said)


def _verified(
    answer: CheckpointsAnswer, problems: Mapping[int, Sequence[str]]
) -> CheckpointsAnswer:
    skipped = {item.step: item.untrusted_detail for item in answer.skipped}
    rows = _checked(answer.checkpoints, problems, skipped)
    superseded = _checked(answer.superseded or (), problems, skipped)
    whole = [row.step for row in rows if row.verified]
    newest = max(whole, default=None)
    return CheckpointsAnswer(
        checkpoints=rows,
        skipped=[_skipped(step, detail) for step, detail in sorted(skipped.items())],
        resume_from=newest,
        superseded=superseded or None,
    )


def _checked(
    rows: Sequence[CheckpointRow],
    problems: Mapping[int, Sequence[str]],
    skipped: dict[int, str | None],
) -> list[CheckpointRow]:
    """The rows as the host found them; what is damaged is added to `skipped`."""
    checked = []
    for row in rows:
        row_problems = problems.get(row.step, ["its folder is gone"])
        checked.append(row.model_copy(update={"verified": not row_problems}))
        if row_problems:
            skipped[row.step] = "; ".join(row_problems)
    return checked

"""`diagnose`: a run, or any log file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainer_runtime.core.protocol.states import RunState
from trainmaster.metrics.log_file import is_file
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file
from trainmaster.runs.diagnosis.diagnose_run import found_of
from trainmaster.runs.next_step import next_step
from trainmaster.runs.status import evidence_of
from trainmaster.sync.refresh import refresh
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.diagnosis import DiagnosisAnswer

MOST_FINDINGS = 10
MOST_OF_EVERYTHING = 100


async def diagnose(
    workspace: Workspace, run_or_file: str, *, everything: bool = False
) -> DiagnosisAnswer:
    """The findings, the first cause first, with evidence and patches.

    Of a run: its host's findings for the newest attempt, and damaged checkpoints; `everything`
    adds those that are over and earlier attempts'. Of a file: all findings of its text and series.

    Raises:
        StateError: `RUN_NOT_FOUND`, neither a run nor a file.
        UsageError: `LOG_NOT_READABLE`.
    """
    if is_file(workspace, run_or_file):
        return await asyncio.to_thread(diagnose_file, Path(run_or_file))
    view = await refresh(workspace, run_or_file)
    found = found_of(view)
    listed = [one for one in found if everything or not one.over]
    most = MOST_OF_EVERYTHING if everything else MOST_FINDINGS
    is_unexplained = view.state is RunState.FAILED and not listed
    return DiagnosisAnswer(
        run_id=view.run.run_id,
        findings=[one.answer() for one in listed[:most]],
        reason=view.reason if is_unexplained else None,
        evidence=evidence_of(view) if is_unexplained else None,
        omitted=max(0, len(listed) - most) or None,
        next_step=next_step(view, [one for one in found if not one.over]),
    )

"""`diagnose`: a run, or any log file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from trainer_runtime.core.protocol.command import of_run
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.diagnosis import DiagnosisAnswer, FindingAnswer
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import log_file
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun, found_of, past_in_words
from trainmaster.runs.diagnosis.last_good import compared_with_last_good
from trainmaster.runs.diagnosis.long_log import diagnose_log
from trainmaster.runs.diagnosis.own_of_run import own_findings
from trainmaster.runs.diagnosis.unseen import unseen_of_run
from trainmaster.runs.log.mirrored_logs import newest_log
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.status.status import evidence_of, last_words_of
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

Found = TypeVar("Found", FindingAnswer, FoundOfRun)

MOST_FINDINGS = 10
MOST_OF_EVERYTHING = 100


async def diagnose(
    workspace: Workspace,
    run_or_file: str,
    *,
    everything: bool = False,
    cursor: str | None = None,
    pattern: str | None = None,
) -> DiagnosisAnswer:
    """The findings, the first cause first, with evidence and patches.

    Of a run: its host's findings for the newest attempt, and damaged checkpoints; `everything`
    adds those that are over and earlier attempts'. Of a file: all findings of its text and series.
    `pattern`: the shape of the lines, where it is to be taught; a run's newest log is read by it
    like a file. `cursor`, from an earlier
    answer: only the findings after its last one.

    Raises:
        StateError: `RUN_NOT_FOUND`, neither a run nor a file.
        UsageError: `LOG_NOT_READABLE`, `CURSOR_INVALID`; `PATTERN_INVALID`, `PATTERN_TOO_SLOW`,
            `PATTERN_MATCHES_NOTHING`; `KIND_INVALID`.
    """
    file = log_file(workspace, run_or_file)
    if file is not None:
        whole = await diagnose_log(file, pattern, workspace.home.kinds)
        return whole.model_copy(update={"findings": _after(whole.findings, cursor)})
    view = await refresh(workspace, run_or_file)
    if pattern is not None:
        reread = await diagnose_log(newest_log(workspace, view), pattern, workspace.home.kinds)
        return reread.model_copy(update={"findings": _after(reread.findings, cursor)})
    answer = diagnosis_of(view, everything=everything, cursor=cursor)
    own = await in_thread(own_findings, workspace, view) if cursor is None else []
    update = {
        "findings": [*own, *answer.findings],
        "compared": compared_with_last_good(workspace, view),
    }
    return answer.model_copy(update=update)


def diagnosis_of(
    view: RunView, *, everything: bool = False, cursor: str | None = None
) -> DiagnosisAnswer:
    """The findings of a run from its view.

    Raises:
        UsageError: `CURSOR_INVALID`.
    """
    findings_of_run = found_of(view)
    listed = [finding for finding in findings_of_run if everything or not finding.over]
    page = _after(listed, cursor)
    most = MOST_OF_EVERYTHING if everything else MOST_FINDINGS
    why = DiagnosisAnswer(findings=[]) if listed else _unexplained(view)
    return DiagnosisAnswer(
        run_id=view.run.run_id,
        findings=[_for_run(finding.answer(), view.run.run_id) for finding in page[:most]],
        past=None if everything else past_in_words(view, findings_of_run),
        reason=why.reason,
        untrusted_detail=why.untrusted_detail,
        evidence=why.evidence,
        unseen=None if listed or why.reason else unseen_of_run(view) or None,
        omitted=max(0, len(page) - most) or None,
        cursor=page[most - 1].id if len(page) > most else None,
        next_step=next_step(
            view, [finding for finding in findings_of_run if not finding.over], is_explained=True
        ),
        incomplete=view.incomplete,
    )


def _for_run(finding: FindingAnswer, run_id: str) -> FindingAnswer:
    advice = [of_run(sentence, run_id) for sentence in finding.advice]
    return finding.model_copy(update={"advice": advice})


def _unexplained(view: RunView) -> DiagnosisAnswer:
    """How the run failed, or how its last attempt did that is tried again: in its preparation, or
    by ending before its last step."""
    failed = view.unprepared
    if view.state is RunState.FAILED:
        return DiagnosisAnswer(
            findings=[],
            reason=view.reason,
            untrusted_detail=view.detail,
            evidence=evidence_of(view),
        )
    where = "in its preparation"
    if failed is None:
        failed, where = view.ended_early, "which ended by itself"
    if failed is None or view.ended:
        return DiagnosisAnswer(findings=[])
    detail = None if failed.detail is None else shown(failed.detail.encode(errors="replace"))
    return DiagnosisAnswer(
        findings=[],
        reason=f"attempt {failed.number}, {where}",
        untrusted_detail=detail,
        evidence=last_words_of(failed),
    )


def _after(findings: Sequence[Found], cursor: str | None) -> list[Found]:
    if cursor is None:
        return list(findings)
    for place, finding in enumerate(findings, 1):
        if finding.id == cursor:
            return list(findings[place:])
    raise UsageError(
        "CURSOR_INVALID",
        f"No finding before the cursor {cursor[:80]!r} is known now.",
        "Call it without a cursor: the findings have changed.",
        field="cursor",
    )

"""`diagnose`: a run, or any log file.

Hosts do not have them: they are tried here, on the mirror of the newest attempt.

What both records hold is compared: settings, data, code, host, and what the trainers reported of
their environment. A run is of the same spec if it has the same framework and name, up to the number
that keeps names unique.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trainer_runtime.core.diagnosis.signatures import SignatureScan, find
from trainer_runtime.core.protocol.command import of_run
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.diagnosis import ComparedRun, DiagnosisAnswer, FindingAnswer
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import chunks_between, log_file, open_log
from trainmaster.metrics.reading_process import read_beside
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun, found_of, past_in_words
from trainmaster.runs.diagnosis.finding_answer import finding_answer
from trainmaster.runs.diagnosis.own_kinds import own_kinds
from trainmaster.runs.diagnosis.profile import ProfileOptions, profiled
from trainmaster.runs.diagnosis.speed import StatedSpeed, speed_of
from trainmaster.runs.diagnosis.unseen import unseen_of_run
from trainmaster.runs.log.mirrored_logs import newest_log
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.status.status import evidence_of, last_words_of
from trainmaster.store.run import Run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_MOST, _LONGEST = 12, 60
_SEARCHED, _READ = 200, 20
_NUMBER = re.compile(r"-\d+$")
# Different in each run, or following from other fields.
_NOT_COMPARED = frozenset({"run_id", "name", "derived", "inputs", "labels", "alerts"})
_NOT_OF_DATA = frozenset({"cache_dir", "upload", "skip", "tokenizer_digest"})
_CODE = frozenset({"commit", "dirty", "digest", "source", "folder"})
# What a trainer's host reported may stand here only as a version or a device's name.
_REPORTED = {"torch": re.compile(r"[\w.+-]{1,40}"), "device": re.compile(r"[\w :.()-]{1,40}")}
_READ_BYTES = 1 << 20
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
    speed: StatedSpeed | None = None,
    profile: ProfileOptions | None = None,
) -> DiagnosisAnswer:
    """The findings, the first cause first, with evidence and patches.

    Of a run: its host's findings for the newest attempt, and damaged checkpoints; `everything`
    adds those that are over and earlier attempts'. Of a file: all findings of its text and series.
    `pattern`: the shape of the lines, where it is to be taught; a run's newest log is read by it
    like a file. `cursor`, from an earlier
    answer: only the findings after its last one. `speed`: instead, how fast it is, with what is
    stated of it; of no run, what is stated alone. `profile`: its trainer profiles its next steps
    first.

    Raises:
        StateError: `RUN_NOT_FOUND`, neither a run nor a file.
        UsageError: `LOG_NOT_READABLE`, `CURSOR_INVALID`; `PATTERN_INVALID`, `PATTERN_TOO_SLOW`,
            `PATTERN_MATCHES_NOTHING`; `KIND_INVALID`.
        StateError, HostError: as `profiled`.
    """
    if speed is not None:
        view = await refresh(workspace, run_or_file) if run_or_file else None
        if view is not None and profile is not None:
            view = await profiled(workspace, view, profile)
        return speed_of(workspace, view, speed)
    file = log_file(workspace, run_or_file)
    if file is not None:
        whole = await _diagnosed(workspace, file, pattern)
        return whole.model_copy(update={"findings": _after(whole.findings, cursor)})
    view = await refresh(workspace, run_or_file)
    if pattern is not None:
        reread = await _diagnosed(workspace, newest_log(workspace, view), pattern)
        return reread.model_copy(update={"findings": _after(reread.findings, cursor)})
    answer = diagnosis_of(view, everything=everything, cursor=cursor)
    own = await in_thread(own_findings, workspace, view) if cursor is None else []
    update = {
        "findings": [*own, *answer.findings],
        "compared": compared_with_last_good(workspace, view),
    }
    return answer.model_copy(update=update)


async def _diagnosed(workspace: Workspace, file: Path, pattern: str | None) -> DiagnosisAnswer:
    """Of a log whose end, which says the most, can't be reached in time, nothing is answered."""
    kinds = workspace.home.kinds
    return await read_beside(file, diagnose_file, file, pattern=pattern, kinds=kinds)


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


def own_findings(workspace: Workspace, view: RunView) -> list[FindingAnswer]:
    """Findings of the user's kinds alone.

    Raises:
        UsageError: `KIND_INVALID`.
    """
    own = own_kinds(workspace.home.kinds)
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    path = mirror.path(f"attempts/{view.attempt}/train.log")
    if not own or not path.is_file():
        return []
    path = path.resolve()
    with open_log(path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(0, size - _READ_BYTES)
        scan = SignatureScan(begin, own=own)
        for chunk in chunks_between(path, file, begin, size):
            scan.feed(chunk)
    scan.finish()
    codes = {kind.code for kind in own}
    findings = find(scan.result(), placement=view.run.placement, attempt=view.attempt, own=own)
    return [
        finding_answer(finding, attempt=view.attempt)
        for finding in findings
        if finding.code in codes
    ]


def compared_with_last_good(workspace: Workspace, view: RunView) -> ComparedRun | None:
    """What differs from the last completed run of the spec; None where there is none, or where the
    run has not failed."""
    if view.state is not RunState.FAILED or view.run.is_attached:
        return None
    good = _last_good(workspace, view.run)
    if good is None:
        return None
    differences = [*_of_code(good.run, view.run), *_of_documents(good.run, view.run)]
    differences += _of_places(good, view)
    lines = [f"{name}: {_shown(old)} -> {_shown(new)}" for name, old, new in differences]
    omitted = max(0, len(lines) - _MOST)
    return ComparedRun(run_id=good.run.run_id, differs=lines[:_MOST], omitted=omitted or None)


def _last_good(workspace: Workspace, run: Run) -> RunView | None:
    base = _NUMBER.sub("", run.name)
    read = 0
    for row in workspace.control.list.newest(_SEARCHED, ended=RunState.COMPLETED.value):
        if _NUMBER.sub("", row.name) != base or row.created_t >= run.created_t:
            continue
        if read == _READ:
            return None
        read += 1
        view = load_view(workspace, row.run_id)  # it may have ended since the list was written
        is_alike = view.run.document.get("framework") == run.document.get("framework")
        if is_alike and view.state is RunState.COMPLETED:
            return view
    return None


def _of_code(good: Run, bad: Run) -> Iterator[tuple[str, Any, Any]]:
    old, new = _code(good), _code(bad)
    if old != new:
        yield "code", old, new


def _code(run: Run) -> str | None:
    script = run.document.get("script") or {}
    commit, digest = script.get("commit"), script.get("digest")
    content = None if digest is None else f"sha256:{digest[:12]}"
    if commit is None:
        return content
    return f"{commit[:12]} with changes {content}" if script.get("dirty") else str(commit[:12])


def _of_documents(good: Run, bad: Run) -> Iterator[tuple[str, Any, Any]]:
    old, new = dict(_flat(good.document, "")), dict(_flat(bad.document, ""))
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values of a document under dotted names; a list of named items by these."""
    if isinstance(value, Mapping):
        for key, part_value in value.items():
            if not _is_left(name, key):
                yield from _flat(part_value, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and all(map(_is_named, value)):
        for part_value in value:
            rest = {key: part for key, part in part_value.items() if key != "name"}
            yield from _flat(rest, f"{name}.{part_value['name']}")
    else:
        yield name, value


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and "name" in value


def _is_left(name: str, key: str) -> bool:
    if not name:
        return key in _NOT_COMPARED
    if name == "script":
        return key in _CODE
    if name in ("optimizer", "eval"):
        return key in ("usual_lr", "batch_size")  # they follow from others
    # A path in the cache holds the fingerprint, which is compared by itself.
    is_path = key == "path" and name.startswith(("data.sources.", "data.validation."))
    return is_path or (name == "data" and key in _NOT_OF_DATA)


def _of_places(good: RunView, bad: RunView) -> Iterator[tuple[str, Any, Any]]:
    if good.run.host != bad.run.host:
        yield "host", good.run.host, bad.run.host
    for name in _REPORTED:
        old, new = _reported(good, name), _reported(bad, name)
        if old is not None and new is not None and old != new:
            yield f"environment.{name}", old, new


def _reported(view: RunView, name: str) -> str | None:
    for progress in reversed(view.attempts):
        value = progress.described.get(name)
        if isinstance(value, str) and _REPORTED[name].fullmatch(value):
            return value
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

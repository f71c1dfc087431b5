"""Diagnoses a log file of any training, with nothing but the file."""

from __future__ import annotations

import time
from pathlib import Path

from trainer_runtime.core.diagnosis.log_end import waiting, zero_rows
from trainer_runtime.core.diagnosis.merge_findings import merge_findings
from trainer_runtime.core.diagnosis.parse.coverage import frequent_lines
from trainer_runtime.core.diagnosis.remedies import advice
from trainer_runtime.core.diagnosis.signatures import SignatureScan, find
from trainer_runtime.core.diagnosis.signatures.explain import explain
from trainer_runtime.core.protocol.finding import Finding, finding_id
from trainmaster.answers.diagnosis import DiagnosisAnswer
from trainmaster.answers.metrics import LogCoverage
from trainmaster.metrics.log_file import read_text
from trainmaster.metrics.log_pattern import taught_patterns
from trainmaster.runs.diagnosis.diagnose_run import place
from trainmaster.runs.diagnosis.finding_answer import finding_answer
from trainmaster.runs.diagnosis.own_kinds import own_kinds
from trainmaster.runs.diagnosis.series import MOST_STEPS, LogSeries
from trainmaster.runs.diagnosis.unseen import unseen

_VANISHED = "vanished"
_STILL_WRITTEN_S = 300.0


def diagnose_file(
    path: Path,
    *,
    most_steps: int = MOST_STEPS,
    pattern: str | None = None,
    kinds: Path | None = None,
) -> DiagnosisAnswer:
    """The findings of the text and the series of the whole log, read once.

    The log may be of any size; lines added meanwhile are left out. The detectors read its series
    for the first `most_steps` steps. `pattern`: the shape of its lines, where it is to be taught.
    `kinds`: a file of the user's own kinds of failures.

    Raises:
        UsageError: `LOG_NOT_READABLE`, it can't be read, or is not text; `PATTERN_INVALID`,
            `PATTERN_TOO_SLOW`, `PATTERN_MATCHES_NOTHING`; `KIND_INVALID`.
    """
    patterns, own = taught_patterns(pattern), own_kinds(kinds)
    scan, series = SignatureScan(own=own), LogSeries(most_steps, patterns)
    size, begin = 0, b""
    for chunk in read_text(path):
        scan.feed(chunk)
        series.feed(chunk)
        size += len(chunk)
        begin = begin or chunk
    scan.finish()
    of_series, over = series.findings()
    if patterns:
        series.refuse_without_match(str(path))
    result = scan.result()
    of_log = find(result, own=own)
    if not any(item.severity == "critical" for item in (*of_log, *of_series)):
        at_end = (zero_rows(result.tail), waiting(result.tail))
        of_end = [finding for finding in at_end if finding]
        of_log += of_end or _vanished(path, series)
    findings = _in_order(merge_findings(_that_count(of_series, of_log, over), of_log), over)
    understood = _understood(series, begin) if size else None
    return DiagnosisAnswer(
        findings=[finding_answer(item, over=item.id in over) for item in findings],
        read_bytes=size,
        read_share=series.read_share(),
        series_until_step=series.until_step,
        understood=understood,
        unseen=None
        if findings or understood is None
        else unseen(understood, series.losses) or None,
    )


def _understood(series: LogSeries, begin: bytes) -> LogCoverage:
    """What was understood; of nothing the most frequent lines with numbers."""
    return series.understood(frequent_lines(begin))


def _vanished(path: Path, series: LogSeries) -> list[Finding]:
    """A log that nobody has written to for a while, and that ends before the last step."""
    left = series.steps_left
    if left is None or time.time() - path.stat().st_mtime < _STILL_WRITTEN_S:
        return []
    last, target = left
    slots = {"last_step": last, "target_step": target}
    return [
        Finding(
            id=finding_id(0, 0, _VANISHED, last),
            code=_VANISHED,
            severity="warning",
            confidence=0.9,
            step=last,
            evidence=(),
            explanation=explain(_VANISHED, slots),
            advice=advice(_VANISHED, slots),
            slots=slots,
        )
    ]


def _that_count(of_series: list[Finding], of_log: list[Finding], over: set[str]) -> list[Finding]:
    """Without gradients that overflowed and recovered: a loss scale being adjusted; a file does not
    record the precision. The signatures count how many there were."""
    named = {finding.code for finding in of_log}
    return [
        finding
        for finding in of_series
        if finding.code != "nan_grad" or finding.id not in over or "nan_grad" in named
    ]


def _in_order(findings: list[Finding], over: set[str]) -> list[Finding]:
    codes = {finding.code for finding in findings if finding.id not in over}
    symptoms = {code for finding in findings for code in finding.led_to}
    return sorted(
        findings,
        key=lambda finding: place(
            finding.code, finding.severity, over=finding.id in over, codes=codes, symptoms=symptoms
        ),
    )

"""Diagnoses a log file of any training, with nothing but the file."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.diagnosis.merge_findings import merge_findings
from trainer_runtime.core.diagnosis.signatures import SignatureScan, find
from trainer_runtime.core.protocol.finding import Finding
from trainmaster.metrics.log_file import read_text
from trainmaster.runs.diagnosis.finding_answer import finding_answer
from trainmaster.runs.diagnosis.order import place
from trainmaster.runs.diagnosis.series import MOST_STEPS, LogSeries
from trainmaster.words.answers.diagnosis import DiagnosisAnswer


def diagnose_file(path: Path, *, most_steps: int = MOST_STEPS) -> DiagnosisAnswer:
    """The findings of the text and the series of the whole log, read once.

    The log may be of any size; lines added meanwhile are left out. The detectors read its series
    for the first `most_steps` steps.

    Raises:
        UsageError: `LOG_NOT_READABLE`, it can't be read, or is not text.
    """
    scan, series, size = SignatureScan(), LogSeries(most_steps), 0
    for chunk in read_text(path):
        scan.feed(chunk)
        series.feed(chunk)
        size += len(chunk)
    scan.finish()
    of_series, over = series.findings()
    of_log = find(scan.result())
    found = _in_order(merge_findings(_that_count(of_series, of_log, over), of_log), over)
    return DiagnosisAnswer(
        findings=[finding_answer(one, over=one.id in over) for one in found],
        read_bytes=size,
        read_share=series.read_share(),
        series_until_step=series.until_step,
    )


def _that_count(of_series: list[Finding], of_log: list[Finding], over: set[str]) -> list[Finding]:
    """Without gradients that overflowed and recovered: a loss scale being adjusted; a file does not
    record the precision. The signatures count how many there were."""
    named = {one.code for one in of_log}
    return [
        one
        for one in of_series
        if one.code != "nan_grad" or one.id not in over or "nan_grad" in named
    ]


def _in_order(found: list[Finding], over: set[str]) -> list[Finding]:
    codes = {one.code for one in found if one.id not in over}
    symptoms = {code for one in found for code in one.led_to}
    return sorted(
        found,
        key=lambda one: place(
            one.code, one.severity, over=one.id in over, codes=codes, symptoms=symptoms
        ),
    )

"""Diagnoses a log file of any training, with nothing but the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.core.finding import Finding
from trainer_runtime.core.merged import merged
from trainer_runtime.core.signatures import SignatureScan, find
from trainmaster.diagnosis.answer import DiagnosisAnswer, finding_answer
from trainmaster.diagnosis.order import place
from trainmaster.diagnosis.series import MOST_STEPS, LogSeries
from trainmaster.errors import UsageError
from trainmaster.log_file import not_readable, read_chunks

_JUDGED_BYTES = 1 << 16
# Tab, newline, carriage return, backspace, escape, form feed; NULs stand where a log was cut off
# while its writer went on.
_SEEN_IN_LOGS = b"\t\n\r\b\x1b\x0c\0"
_CONTROL = bytes(byte for byte in range(32) if byte not in _SEEN_IN_LOGS) + b"\x7f"
_MOST_CONTROL = 0.05  # of random bytes 0.1 are
_OTHER_WIDTHS = (b"\xff\xfe", b"\xfe\xff")


def diagnose_file(path: Path, *, most_steps: int = MOST_STEPS) -> DiagnosisAnswer:
    """What went wrong, by the text and the series of the whole log, read once.

    The log may be of any size; what comes to it meanwhile is left. Its series are looked at for the
    first `most_steps` steps.

    Raises:
        UsageError: `LOG_NOT_READABLE`, it can't be read or is no text.
    """
    scan, series, size = SignatureScan(), LogSeries(most_steps), 0
    for chunk in _text(path):
        scan.feed(chunk)
        series.feed(chunk)
        size += len(chunk)
    scan.finish()
    of_series, over = series.findings()
    of_log = find(scan.seen())
    found = _in_order(merged(_that_count(of_series, of_log, over), of_log), over)
    return DiagnosisAnswer(
        findings=[finding_answer(one.to_dict(), over=one.id in over) for one in found],
        read_bytes=size,
        series_until_step=series.until_step,
    )


def _text(path: Path) -> Iterator[bytes]:
    """Raises:
    UsageError: the first that stands there is no text.
    """
    judged = False
    for chunk in read_chunks(path):
        if not judged and (begin := chunk.lstrip(b"\0")[:_JUDGED_BYTES]):
            judged = True
            _refuse_what_is_no_text(path, begin)
        yield chunk


def _refuse_what_is_no_text(path: Path, begin: bytes) -> None:
    if begin.startswith(_OTHER_WIDTHS):
        raise UsageError(
            "LOG_NOT_READABLE",
            f"{path} is text of two bytes a letter (UTF-16), as PowerShell's `>` writes it.",
            "Convert it first: `iconv -f UTF-16 -t UTF-8`.",
        )
    control = len(begin) - len(begin.translate(None, _CONTROL))
    if control > _MOST_CONTROL * len(begin):
        raise not_readable(path, "it holds binary data")


def _that_count(of_series: list[Finding], of_log: list[Finding], over: set[str]) -> list[Finding]:
    """Without gradients that overflowed and came back: so a loss scale is found, and nothing tells
    the precision of a stranger's run. The signatures count how many there were."""
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

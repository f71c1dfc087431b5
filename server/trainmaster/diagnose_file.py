"""Diagnoses a log file of any training, with nothing but the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.signatures import Outcome, SignatureScan, find
from trainmaster.findings_answer import DiagnosisAnswer, answer_of

_CHUNK_BYTES = 1 << 20


def diagnose_file(path: Path, outcome: Outcome | None = None) -> DiagnosisAnswer:
    """What went wrong, by the text of the whole log and, where known, how its process ended.

    The log may be of any size: it is read once, in pieces. What comes to it meanwhile is left.

    Raises:
        OSError: the file can't be read.
    """
    scan, size = SignatureScan(), 0
    with path.open("rb", buffering=0) as file:
        for chunk in _chunks(file):
            scan.feed(chunk)
            size += len(chunk)
    scan.finish()
    return answer_of(find(scan.seen(), outcome), read_bytes=size)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk

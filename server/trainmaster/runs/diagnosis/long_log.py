"""Diagnoses a log file beside other work: a server's long one in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster.answers.diagnosis import DiagnosisAnswer
from trainmaster.answers.validation import adapter_of
from trainmaster.calls.work import current_work
from trainmaster.calls.work_thread import in_thread
from trainmaster.metrics.read_file import short_bytes
from trainmaster.metrics.reading_process import DIAGNOSIS, Requested, read_in_process
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file


async def diagnose_log(path: Path, pattern: str | None, kinds: Path) -> DiagnosisAnswer:
    """As `diagnose_file`.

    Raises:
        UsageError: as there.
        StateError: `READ_TOO_LONG`, the time of the call is over: its end, which says the most, was
            not read.
    """
    if current_work().shares is None or _size(path) <= short_bytes():
        return await in_thread(diagnose_file, path, pattern=pattern, kinds=kinds)
    request = {"what": DIAGNOSIS, "path": str(path), "pattern": pattern, "kinds": str(kinds)}
    answer = await read_in_process(request)
    diagnosis: DiagnosisAnswer = adapter_of(DiagnosisAnswer).validate_python(answer["diagnosis"])
    return diagnosis


def diagnose_requested(requested: Requested) -> dict[str, Any]:
    """Diagnose what a process was started for."""
    request = requested.request
    kinds = Path(request["kinds"])
    answer = diagnose_file(Path(request["path"]), pattern=request["pattern"], kinds=kinds)
    return {"diagnosis": answer.model_dump()}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reported by what opens it

"""What a host reports of logs that it has no room for: `source_not_copied`, `log_cut`,
`log_not_cut`."""

from __future__ import annotations

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value

NOT_COPIED, COPIED, LOG_CUT = "source_not_copied", "source_copied", "log_cut"
LOG_NOT_CUT = "log_not_cut"
DECISIONS = frozenset({NOT_COPIED, COPIED, LOG_CUT, LOG_NOT_CUT})
_GIB = float(1 << 30)
_BOUNDS = frozenset({"source", "run", "root", "disk"})


def noticed(context: DetectorContext, what: str, step: int, fields: Fields) -> None:
    """Open or close the finding of a decision `what` of the host."""
    if what == COPIED:
        context.ledger.close(NOT_COPIED, step)
        return
    if what == LOG_CUT:
        context.ledger.close(LOG_NOT_CUT, step)
    values: dict[str, Value] = {
        "read_gib": fields.integer("read_bytes", 0) / _GIB,
        "size_gib": fields.integer("bytes", 0) / _GIB,
    }
    bound = fields.text("bound", "")
    limit = fields.find_number("limit") or 0.0
    if bound in _BOUNDS:
        values[f"{bound}_gib"] = limit / _GIB
    elif bound == "replaced":
        values["replaced"] = limit
    opened = context.ledger.open(what, step, "warning", step=step, confidence=0.95)
    opened.values = values

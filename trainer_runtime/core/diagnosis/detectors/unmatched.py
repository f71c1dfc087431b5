"""What a program's relay reports of its spec: `checkpoints_unmatched`, `log_not_understood`.

The relay knows files and lines; these are only its words as findings. A checkpoint that is saved
closes the first one.
"""

from __future__ import annotations

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.diagnosis.pattern_example import LOG_NOT_UNDERSTOOD
from trainer_runtime.core.protocol.finding import Severity
from trainer_runtime.core.protocol.text import cleaned

CHECKPOINTS, LOG = "checkpoints_unmatched", LOG_NOT_UNDERSTOOD
_LONGEST = 200


def noticed(context: DetectorContext, what: str, step: int, fields: Fields) -> None:
    """Open the finding of a decision `what` of the relay."""
    values: dict[str, Value] = {}
    severity: Severity = "warning"
    pattern = fields.find_text("pattern")
    if pattern is not None:
        values["pattern"] = cleaned(pattern, _LONGEST)
    if what == CHECKPOINTS:
        files = [cleaned(name, _LONGEST) for name in fields.texts("files")]
        values |= {"files": files} if files else {"no_files": "none"}
    else:
        severity = "info" if pattern is None else "warning"
        values["lines"] = float(fields.integer("lines", 0))
        draft = fields.find_text("draft")
        values |= {"draft": cleaned(draft, _LONGEST)} if draft is not None else {}
        for number, line in enumerate(fields.texts("samples")[:3], 1):
            values[f"sample_{number}"] = cleaned(line, _LONGEST)
    context.ledger.open(what, step, severity, step=step, confidence=0.95, values=values)


def saved(context: DetectorContext, step: int) -> None:
    """Take in that a checkpoint was saved."""
    context.ledger.close(CHECKPOINTS, step)

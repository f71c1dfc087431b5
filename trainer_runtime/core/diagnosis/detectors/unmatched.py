"""What a program's relay reports of its spec: `checkpoints_unmatched`, `log_not_understood`.

The relay knows files and lines; these are only its words as findings. A checkpoint that is saved
closes the first one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.diagnosis.pattern_example import LOG_NOT_UNDERSTOOD
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.finding import Severity
from trainer_runtime.core.protocol.text import cleaned
from trainer_runtime.core.protocol.trainer_lines import Decided

CHECKPOINTS, LOG = "checkpoints_unmatched", LOG_NOT_UNDERSTOOD
_LONGEST = 200
_CODES = {
    "checkpoints_unmatched": Code(
        "`script.checkpoints` matches nothing that the program has written: a crash would lose all "
        "of its work.",
        (
            "script.checkpoints.path is {pattern}",
            "written since the start: {files}",
            "files like checkpoints, written since the start: {no_files}",
        ),
        (
            "Launch again with a script.checkpoints.path that matches what it saves, as seen from "
            "the program's folder.",
        ),
    ),
    "log_not_understood": Code(
        "No metrics were read from the program's log: its steps and losses are not known, and its "
        "hangs are not found. The training itself is not affected.",
        (
            "{lines} lines with numbers so far",
            "its pattern is {pattern}",
            "drafted as a LINE of it: {draft}",
            "{sample_1}",
            "{sample_2}",
            "{sample_3}",
        ),
        (
            f"{command('metrics', 'RUN', '--pattern', 'LINE')} has this machine read it: LINE is "
            "one of its lines with names in braces for its numbers (docs/logs.md). With "
            "script.pattern, or attached again with it, its host reads it, too.",
            "Or have the program report its steps itself (docs/any-program.md).",
        ),
    ),
}


@dataclass(slots=True)
class Unmatched(Detector):
    codes = _CODES
    events = ("decision", "checkpoint")

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        if kind == "decision":
            what = Decided.of(fields).what
            if what in _CODES:
                self._open(context, what, step, fields)
        elif fields.text("action", "saved") == "saved":
            context.ledger.close(CHECKPOINTS, step)

    def _open(self, context: DetectorContext, what: str, step: int, fields: Fields) -> None:
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

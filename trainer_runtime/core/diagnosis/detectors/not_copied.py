"""What a host reports of logs that it has no room for: `source_not_copied`, `log_cut`,
`log_not_cut`."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.trainer_lines import Decided

NOT_COPIED, COPIED, LOG_CUT = "source_not_copied", "source_copied", "log_cut"
LOG_NOT_CUT = "log_not_cut"
_GIB = float(1 << 30)
_BOUNDS = frozenset({"source", "run", "root", "disk"})
_CODES = {
    "source_not_copied": Code(
        "The log that is followed is not copied any further: the host has no more room for it. The "
        "training is still watched, by its processes and the length of its log; steps and metrics "
        "that it logs from here on are not known.",
        (
            "{read_gib} GiB of the {size_gib} GiB of the log were read",
            "the host copies {source_gib} GiB of one log",
            "the host writes {run_gib} GiB for one run that it follows",
            "the host writes {root_gib} GiB for all runs that it follows",
            "{disk_gib} GiB of the host's disk stay free",
            "the log was replaced {replaced} times",
        ),
        (
            "Free space on the host, or raise the bound in `limits.json` in the folder of its runs "
            "(docs/hosts.md): copying then continues where it stopped.",
            (
                f"Or attach again with {option('--from', 'end')}, which leaves out what "
                "was written before."
            ),
        ),
    ),
    "log_cut": Code(
        "The log has grown so long that its middle was freed on the host. Its beginning and its "
        "newest lines are kept; the training itself is not affected.",
        ("the log had {size_gib} GiB; the host keeps {source_gib} GiB of it at most",),
        (
            "Have the program print less, or raise `source_gib` in `limits.json` in the folder of "
            "the host's runs (docs/hosts.md).",
        ),
    ),
    "log_not_cut": Code(
        "The log has grown beyond its bound, and the host's file system can't free a part of a "
        "file. It stays whole while the disk keeps its margin; below that it is emptied, and only "
        "its first and newest lines are kept beside it.",
        ("the log has {size_gib} GiB; its bound is {source_gib} GiB",),
        (
            "Have the program print less, or give the host a root on another file system (ext4, "
            "XFS, Btrfs).",
        ),
    ),
}


@dataclass(slots=True)
class NotCopied(Detector):
    codes = _CODES
    events = ("decision",)

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        what = Decided.of(fields).what
        if what == COPIED or what in _CODES:
            self._note(context, what, step, fields)

    def _note(self, context: DetectorContext, what: str, step: int, fields: Fields) -> None:
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

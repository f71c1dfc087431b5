"""Recognises failures in logs, kernel messages and exit codes.

    scan = SignatureScan()
    scan.feed(...)                                    # in pieces of any size
    scan.finish()
    findings = find(scan.result(), Outcome(code=1))   # root cause first

Signatures are data (catalogue/). `scan.py` reads the log: `log_blocks.py` cuts it into blocks,
`shapes.py` selects lines that may be failures, `line_matcher.py` matches them (`is_quoted.py`
rejects quoted text), `episodes.py` records the matches. `root_cause.py` finds the root cause among
those of `cause_sources.py` by the table in `causality.py`. `explain.py` has the texts.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE
from trainer_runtime.core.diagnosis.signatures.cause_sources import Cause
from trainer_runtime.core.diagnosis.signatures.diagnose import find, find_in
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.root_cause import root_causes
from trainer_runtime.core.diagnosis.signatures.scan import ScanResult, SignatureScan

__all__ = [
    "CATALOGUE",
    "Cause",
    "Outcome",
    "ScanResult",
    "SignatureScan",
    "find",
    "find_in",
    "root_causes",
]

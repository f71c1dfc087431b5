"""Failures, recognised by what logs, kernels and exit codes say of them.

    scan = SignatureScan()
    scan.feed(...)                                  # in any pieces, as often as there are bytes
    scan.finish()
    findings = find(scan.seen(), Outcome(code=1))   # the first cause first

A signature is data (catalogue/). The way through: shapes.py stops at lines that could be a failure,
the signature's pattern and credible.py decide, scan.py remembers, conclude.py finds the first cause
by causes.py, explain.py puts it in our own words, remedies/ holds what can be done.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE
from trainer_runtime.core.diagnosis.signatures.diagnose import find, find_in
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.root_cause import Cause, conclude
from trainer_runtime.core.diagnosis.signatures.scan import Seen, SignatureScan

__all__ = [
    "CATALOGUE",
    "Cause",
    "Outcome",
    "Seen",
    "SignatureScan",
    "conclude",
    "find",
    "find_in",
]

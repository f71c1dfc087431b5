"""What the newest lines of a log repeat: `waits_for_service`, and `not_learning` of equal rows.

The parser takes equal rows of one step for repetitions of one row (a bar that stands still); rows
of zeros that are printed over and over are therefore counted here, by their lines.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.diagnosis.detectors.messages import advice, evidence, explanation
from trainer_runtime.core.protocol.finding import Finding, Severity, finding_id
from trainer_runtime.core.protocol.text import cleaned

_TAIL_BYTES = 16 * 1024
_LINES = 40
_FEWEST_TIMES = 10
_FEWEST_ROWS = 5
_NEAR_THE_END = 4  # lines
_LONGEST = 200
_RETRIES = re.compile(
    r"(?i)\bretry(?:ing)?\b|\btry(?:ing)? again\b|\breconnect|\bwaiting (?:for|until|on)\b"
    r"|\bnot (?:yet )?(?:up|ready|available|reachable)\b"
)
_NUMBERS = re.compile(r"\d+")
_ROW = re.compile(r"\{'loss': ")
_REWARDS = "'reward"  # where a loss of 0 is normal
_ZERO = r"'?0(?:\.0+)?'?"
_DEAD_ROW = re.compile(rf"\{{'loss': {_ZERO}, '(?P<other>grad_norm|learning_rate)': {_ZERO},")


def waiting(tail: bytes, placement: int = 0, attempt: int = 0) -> Finding | None:
    """The finding, where the newest lines of a log's end repeat one message apart from its
    numbers. `placement` and `attempt` identify the log (0 for a file)."""
    lines = [line.strip() for line in _lines(tail) if line.strip()][-_LINES:]
    newest = next(filter(_RETRIES.search, reversed(lines[-_NEAR_THE_END:])), None)
    if newest is None:
        return None
    shape = _NUMBERS.sub("0", newest)
    times = sum(_NUMBERS.sub("0", line) == shape for line in lines)
    if times < _FEWEST_TIMES:
        return None
    values: dict[str, Value] = {"times": float(times), "line": cleaned(newest, _LONGEST)}
    code = "waits_for_service"
    return _finding(finding_id(placement, attempt, code, 0), code, "warning", values)


def zero_rows(tail: bytes) -> Finding | None:
    """The finding, where the loss and its gradient or rate are 0 in every row of the end."""
    rows = [line for line in _lines(tail) if _ROW.search(line)]
    dead = [match for line in rows if _REWARDS not in line for match in _DEAD_ROW.finditer(line)]
    if len(rows) < _FEWEST_ROWS or len(dead) < len(rows):
        return None
    other = "gradient" if dead[-1]["other"] == "grad_norm" else "rate"
    values: dict[str, Value] = {"cause": f"zero_loss_and_{other}", "points": float(len(rows))}
    code = "not_learning"
    return _finding(finding_id(0, 0, code, 0), code, "critical", {**values, "loss": 0.0})


def _lines(tail: bytes) -> list[str]:
    return tail[-_TAIL_BYTES:].decode(errors="replace").splitlines()


def _finding(identifier: str, code: str, severity: Severity, values: dict[str, Value]) -> Finding:
    return Finding(
        id=identifier,
        code=code,
        severity=severity,
        confidence=0.85,
        step=None,
        evidence=evidence(code, values),
        explanation=explanation(code, values),
        advice=advice(code, values),
        slots={name: value for name, value in values.items() if isinstance(value, float)},
    )

"""The order of findings: the first cause first."""

from __future__ import annotations

from collections.abc import Collection

from trainer_runtime.core.protocol.finding import SEVERITIES, Severity

# Early signs follow the failure that they announced.
_ANNOUNCES = {"grad_norm_rising": {"loss_spike", "divergence", "nan_loss", "nan_grad"}}
# A named finding explains more.
_NAMELESS = "unknown_error"
# How a log ends says least about why.
_ENDS = "vanished"

Place = tuple[bool, int, bool]


def place(
    code: str, severity: Severity, *, over: bool, codes: Collection[str], symptoms: Collection[str]
) -> Place:
    """Sorts (stably) open findings first, then by severity, causes before symptoms.

    `codes` are all that are open, `symptoms` those that another one led to.
    """
    follows = code in symptoms or bool(_ANNOUNCES.get(code, set()) & set(codes))
    follows = follows or code in (_NAMELESS, _ENDS)
    return over, -SEVERITIES.index(severity), follows

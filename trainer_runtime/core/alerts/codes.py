"""The known finding codes: a condition on any other code would never be met."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from trainer_runtime.core.alerts.condition import Condition, FindingCondition

# Codes that replace a stall once stacks were read, and the checkpoint writer's own.
_OTHERS = ("hang_collective", "hang_data", "hang_checkpoint", "slow_not_hung", "checkpoint_failed")


@cache
def finding_codes() -> frozenset[str]:
    """Every code that a finding may have."""
    from trainer_runtime.core.diagnosis.detectors.messages import CODES
    from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE

    named = {*CODES, *(signature.code for signature in CATALOGUE), *_OTHERS}
    return frozenset(code for code in named if not code.startswith("benign_"))


def unknown_code(condition: Condition) -> tuple[str, list[str]] | None:
    """A condition's unknown code with the closest known ones; None if the code is known."""
    code = condition.code if isinstance(condition, FindingCondition) else None
    if code is None or code in finding_codes():
        return None
    return code, get_close_matches(code, sorted(finding_codes()), n=3, cutoff=0.5)

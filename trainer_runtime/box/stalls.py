"""What a stall turns out to be: looked at when it begins, and once more when it is critical."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer_runtime.box.inspection import inspect
from trainer_runtime.box.layout import RunFolder
from trainer_runtime.box.watch import PLACEMENT, Watch
from trainer_runtime.core.finding import Finding
from trainer_runtime.core.intervention import STALL
from trainer_runtime.core.stacks.wording import as_finding

# What the stacks of an attempt that stands still at a step show; bounded in time.
Inspect = Callable[[RunFolder, int, int | None], Finding | None]
# The supervisor waits meanwhile, and beats no heart.
_WITHIN_S = 8.0


def no_verdict(run: RunFolder, attempt: int, step: int | None) -> Finding | None:
    """Nobody looks at stacks."""
    return None


def stack_verdict(run: RunFolder, attempt: int, step: int | None) -> Finding | None:
    """What the processes' stacks show; None where they can't be taken, or show nothing known."""
    try:
        seen = inspect(run, attempt, within_s=_WITHIN_S)
    except OSError:
        return None
    return as_finding(seen.verdict, placement=PLACEMENT, attempt=attempt, step=step)


class StallLook:
    """Has a stall's verdict told beside it, for as long as it lasts."""

    def __init__(self, run: RunFolder, watch: Watch, inspect: Inspect) -> None:
        self._run = run
        self._watch = watch
        self._inspect = inspect
        self._looked: tuple[str, str] | None = None

    def look(self, attempt: int, findings: Sequence[Finding], now: float) -> None:
        """Look at the stacks where a stall is open that was not looked at as it is now."""
        stall = next((finding for finding in findings if finding.code == STALL), None)
        if stall is None or self._looked == (stall.id, stall.severity):
            return
        self._looked = (stall.id, stall.severity)
        verdict = self._inspect(self._run, attempt, stall.step)
        if verdict is not None:
            self._watch.add_verdict(verdict, now)

"""Inspects a stall's cause: when it begins, when it becomes critical, and at growing intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer_runtime.core.policy.intervention import STALL
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.watch.watcher import PLACEMENT, Watch

# What the stacks of an attempt that stands still at a step show; bounded in time.
Inspect = Callable[[RunFolder, int, int | None], Finding | None]
# The supervisor waits meanwhile, and beats no heart.
_WITHIN_S = 8.0
# What was slow may hang by now: inspected again after a minute, two, four, … half an hour.
_AGAIN_AFTER_S = 60.0
_LONGEST_S = 1800.0


def no_verdict(run: RunFolder, attempt: int, step: int | None) -> Finding | None:
    """Take no stacks and give no verdict."""
    return None


def stack_verdict(run: RunFolder, attempt: int, step: int | None) -> Finding | None:
    """What the processes' stacks show; None where they can't be taken, or show nothing known."""
    # They import the log parser: a supervisor begins sooner without, and few runs stall.
    from trainer_runtime.core.diagnosis.stacks.messages import as_finding
    from trainer_runtime.host.watch.inspection import inspect

    try:
        seen = inspect(run, attempt, within_s=_WITHIN_S)
    except OSError:
        return None
    ours = not config_of(run).is_attached
    return as_finding(seen.verdict, placement=PLACEMENT, attempt=attempt, step=step, ours=ours)


class StallInspector:
    """Has a stall's verdict recorded beside it, for as long as it lasts."""

    def __init__(self, run: RunFolder, watch: Watch, inspect: Inspect) -> None:
        self._run = run
        self._watch = watch
        self._inspect = inspect
        self._inspected: tuple[str, str] | None = None
        self._again_t = 0.0
        self._interval_s = _AGAIN_AFTER_S

    def inspect_if_due(self, attempt: int, findings: Sequence[Finding], now: float) -> None:
        """Inspect the stacks if a stall is open that was not inspected at its present severity."""
        stall = next((finding for finding in findings if finding.code == STALL), None)
        if stall is None:
            return
        if self._inspected == (stall.id, stall.severity):
            if now < self._again_t <= now + _LONGEST_S:
                return
            self._interval_s = min(_LONGEST_S, 2 * self._interval_s)
        else:
            self._inspected, self._interval_s = (stall.id, stall.severity), _AGAIN_AFTER_S
        self._again_t = now + self._interval_s
        self._watch.set_verdict(self._inspect(self._run, attempt, stall.step), now)

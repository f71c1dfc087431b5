"""An event of a monitor in one line."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import in_utc, number_text
from trainmaster.answers.monitor import MonitorEvent
from trainmaster.cli.output import printable

_LONGEST_WORDS = 200


def line(event: MonitorEvent) -> str:
    """When, which run or host, what, at which step, with which loss, and the command that leads on:
    `2026-11-23T06:45:12Z gpt finding loss_spike at step 1200, loss 7.31. Next: …`"""
    words = [
        _time(event.t),
        printable(event.name or event.host or "")[:_LONGEST_WORDS],
        event.event,
    ]
    if event.detail is not None:
        words.append(printable(event.detail)[:_LONGEST_WORDS])
    if event.step is not None:
        words.append(f"at step {event.step}")
    losses = (f", {key} {number_text(value)}" for key, value in (event.metrics or {}).items())
    return f"{' '.join(words)}{''.join(losses)}. Next: {printable(event.next_step)}"


def _time(t: float) -> str:
    try:
        return in_utc(t)
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"

"""Writes the events that a program's relay had not written when it was killed.

The program may have reported, or logged, steps since; the next attempt may resume from a checkpoint
behind them, and would never report them again.
"""

from __future__ import annotations

from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.attach.reported import Reports
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.files.write_room import WriteRoom


def write_left_events(attempt: AttemptFolder, pattern: str | None) -> None:
    """Complete the events of an attempt that has ended; may be repeated. `pattern`: the shape of
    the program's lines, where it was taught.

    When a line was printed is not known. It gets the earliest time that it may have: else a
    checkpoint that was saved behind it would count as one of an earlier step.

    Raises:
        OSError: they can't be written.
    """
    reports = Reports(attempt.reported).read()
    room = WriteRoom(RunFolder(attempt.root.parents[1]), int(attempt.root.name), None)
    events = LogEvents(attempt, None, launched=True, pattern=pattern, room=room)
    try:
        if any(report.trained or report.evaluated for report in reports):
            for report in reports:
                if report.step is not None:
                    events.write_reported(report)
        else:
            while events.advance(live=False):
                pass
            events.finish()
        events.sync()
    finally:
        events.close()

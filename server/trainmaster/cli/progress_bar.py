"""The progress bar that a terminal shows while a command waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.figures import in_utc, number_text, size_text, spoken_duration
from trainmaster.cli.format import preparing
from trainmaster.cli.output import is_for_a_person, printable

if TYPE_CHECKING:
    from trainmaster.answers.status import StatusAnswer

Listener = Callable[["StatusAnswer"], Awaitable[None]]


HEARTBEAT_S = 60.0


@contextmanager
def showing_progress(
    as_json: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Listener | None]:
    """Gives what `wait_for_event` reports to; on stderr: a bar to somebody who watches, else a line
    a minute, so that a log shows that it still waits."""
    if as_json or not is_for_a_person(sys.stderr):
        yield _heartbeat(clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("waiting", total=None)

        async def listen(status: StatusAnswer) -> None:
            transfer = status.transfer if status.step == 0 else None
            progress.update(
                task,
                description=printable(describe(status)),
                completed=transfer.done_bytes if transfer else status.step,
                total=transfer.total_bytes if transfer else status.target_step,
            )

        yield listen


def _heartbeat(clock: Callable[[], float]) -> Listener:
    due = clock() + HEARTBEAT_S

    async def listen(status: StatusAnswer) -> None:
        nonlocal due
        if clock() < due:
            return
        due = clock() + HEARTBEAT_S
        line = f"{in_utc(time.time())} {status.run_id}: {describe(status)}"
        print(printable(line), file=sys.stderr, flush=True)

    return listen


def describe(status: StatusAnswer) -> str:
    """One line: state, step, loss, time to go; before the first step, what travels."""
    if status.transfer is not None and status.step == 0:
        done, total = status.transfer.done_bytes, status.transfer.total_bytes
        return f"{status.state}  {status.transfer.what} {size_text(done)} of {size_text(total)}"
    if status.preparation is not None and status.step == 0:
        return f"{status.state}  {preparing(status.preparation)}"
    target = "" if status.target_step is None else f"/{status.target_step}"
    loss = f"  loss {number_text(status.metrics['loss'])}" if "loss" in status.metrics else ""
    remaining = "" if status.eta_s is None else f"  {spoken_duration(status.eta_s)} to go"
    away = "  (host not reached)" if status.unreachable is not None else ""
    return f"{status.state}  step {status.step}{target}{loss}{remaining}{away}"

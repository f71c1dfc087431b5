"""Prints the progress of a download into a folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.protocol.figures import share_text, size_text

_REPORT_S = 2.0


@contextmanager
def progress(what: str, folder: Path, total_bytes: int) -> Iterator[None]:
    """Prints the progress every two seconds."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_REPORT_S):
            here_bytes = size_bytes(folder)
            share = share_text(min(1.0, here_bytes / total_bytes) if total_bytes else 0.0)
            arrived = f"{size_text(here_bytes)} of {size_text(total_bytes)} ({share})"
            print(f"fetching the {what}: {arrived}", flush=True)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def size_bytes(folder: Path) -> int:
    """What a folder holds so far, while it grows."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # renamed into its place just now
                total += Path(parent, name).stat().st_size
    return total

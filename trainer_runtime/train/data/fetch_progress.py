"""Prints the progress of a download into a folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REPORT_S = 2.0


@contextmanager
def progress(what: str, folder: Path, total_bytes: int) -> Iterator[None]:
    """Prints the progress every two seconds."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_REPORT_S):
            here_mib, total_mib = size_bytes(folder) / 2**20, total_bytes / 2**20
            share = min(1.0, here_mib / total_mib) if total_mib else 0.0
            arrived = f"{here_mib:,.1f} of {total_mib:,.1f} MiB ({share:.0%})"
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

"""A rank's own log, beside the one that all ranks of a machine share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO


class _Both:
    """A stream whose text goes into a log, too."""

    def __init__(self, stream: TextIO, log: TextIO) -> None:
        self._stream = stream
        self._log = log

    def write(self, text: str) -> int:
        with suppress(OSError):  # a full disk ends no training
            self._log.write(text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._log.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def keep_log(path: Path) -> None:
    """Write into `path`, line by line, what this process prints from Python; it is printed as
    before. What libraries in C print is in the shared log alone."""
    try:
        log = path.open("a", buffering=1, encoding="utf-8", errors="replace")
    except OSError:
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        both: Any = _Both(stream, log)
        setattr(sys, name, both)
        for handler in _handlers():  # those that libraries have made as they were imported
            if handler.stream is stream:
                handler.setStream(both)


def _handlers() -> Iterator[logging.StreamHandler[Any]]:
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler

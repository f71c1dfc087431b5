"""Bulkheads of loops: what goes wrong for one run, host or instance stops no other one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.base import ItemFailure
from trainmaster.errors.errors import InternalError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.store.database import storage_error


@dataclass(slots=True)
class Failures:
    """What failed, by subject; of each subject the first failure.

    `home`: whose databases are meant where one fails.
    """

    home: Home
    found: dict[str, ItemFailure] = field(default_factory=dict)

    @contextmanager
    def caught(self, subject: str) -> Iterator[None]:
        """Inside, any exception ends the work on this subject and is recorded."""
        try:
            yield
        except Exception as error:
            self.add(subject, error)

    def add(self, subject: str, error: Exception) -> None:
        failure = as_error(error, self.home, subject)
        row = ItemFailure(subject=subject, code=failure.code, message=failure.message)
        self.found.setdefault(subject, row)

    @property
    def rows(self) -> list[ItemFailure] | None:
        """For an answer; None where nothing failed."""
        return list(self.found.values()) or None

    @property
    def texts(self) -> dict[str, str]:
        """By subject, in one line."""
        return {name: f"{row.code}: {row.message}" for name, row in self.found.items()}


def as_error(error: Exception, home: Home, subject: str) -> TrainmasterError:
    """An error of any kind as one of ours; of an unknown one the type alone, since its text may be
    a host's."""
    if isinstance(error, sqlite3.Error):
        return storage_error(error, home.metrics_db)
    if isinstance(error, TrainmasterError):
        return error
    if isinstance(error, TimeoutError):
        fix = f"Try again; {command('doctor')} checks this machine."
        return InternalError("TIMEOUT", f"{subject} took too long.", fix, retryable=True)
    return InternalError(
        "INTERNAL",
        f"Trainmaster failed with {type(error).__name__} at {subject}.",
        "Report it with the traceback that the command shows under TRAINMASTER_DEBUG=1.",
    )

"""The supervisor's journal on disk, and the record it folds into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainer_runtime.core.protocol.journal import Record, TransitionError, check_transition
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.files.files import AppendedLog, LineReader


class Journal:
    """Every write goes to the disk first and into the record from the very line written."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        record: Record | None = None,
        offset: int = 0,
    ) -> None:
        """`record`: what the bytes up to `offset` add up to; None: an empty one."""
        self._clock = clock
        self._heard: Callable[[Event], None] = _nobody
        self.record = record or Record()
        for line in LineReader(path, offset).read():
            self._fold(line)
        self._log = AppendedLog(path, self.record.last_seq + 1)

    def write(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append one event and take it in.

        Raises:
            OSError: it could not be written; the record is as before.
            TransitionError: a state that can't follow the present one; nothing was written.
        """
        if kind == "state":
            check_transition(self.record.state, PlacementState(fields["state"]))
        line = self._log.append(self._clock(), kind, fields)
        self._fold(line)
        if kind != "sample":
            self._log.sync()
        self._heard(decode(line))

    def listen(self, heard: Callable[[Event], None]) -> None:
        """Pass every event written from now on to a listener, as it is in the file."""
        self._heard = heard

    @property
    def size(self) -> int:
        """The file's length in bytes: all of it is in the record."""
        return self._log.size

    def close(self) -> None:
        self._log.close()

    def _fold(self, line: bytes) -> None:
        try:
            self.record.apply(decode(line))
        except (ProtocolError, TransitionError):
            return  # a line torn by a kill


def _nobody(event: Event) -> None:
    """Nobody listens."""

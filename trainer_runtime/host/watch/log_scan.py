"""Scans a growing log for failures: masked first, a bounded piece at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.signatures import ScanResult, SignatureScan
from trainer_runtime.core.protocol.masking import Mask

_PIECE_BYTES = 1 << 20


class MaskedScan:
    """Scans a log for failures; its secrets are masked first.

    Evidence is cut, and a part of a value would not be known as one any more.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._unmasked = b""
        self._scan = SignatureScan()
        self._scanned = 0  # bytes to come that were scanned before

    @property
    def begin(self) -> int:
        """The byte of the log from which on it must be fed to one that is made by `from_dict`: a
        secret may begin before the place where scanning continues."""
        return max(0, self._scan.offset - self._mask.reach_bytes)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`; the log's text in it is masked."""
        return self._scan.to_dict()

    @classmethod
    def from_dict(cls, mask: Mask, memory: Mapping[str, Any]) -> MaskedScan:
        """Raises:
        KeyError, TypeError, ValueError: another version has written it.
        """
        scan = cls(mask)
        scan._scan = SignatureScan.from_dict(memory)
        scan._scanned = scan._scan.offset - scan.begin
        return scan

    def feed(self, data: bytes) -> None:
        """Take in the next bytes of the log."""
        if not self._mask.reach_bytes:
            self._scan.feed(data)
            return
        data = self._unmasked + data
        masked = self._mask.apply(data, final=False)
        self._unmasked = data[len(masked) :]
        self._feed_masked(masked)

    def result(self, *, ended: bool = False) -> ScanResult:
        """What was found so far; `ended`: nothing will be added to it."""
        if ended:
            self._feed_masked(self._mask.apply(self._unmasked, final=True))
            self._unmasked = b""
            self._scan.finish()
        return self._scan.result()

    def _feed_masked(self, masked: bytes) -> None:
        scanned = min(self._scanned, len(masked))
        self._scanned -= scanned
        self._scan.feed(masked[scanned:])


class GrowingLog:
    """Reads what a file has grown by since the last time; one that isn't there has not grown."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    def has_restarted(self) -> bool:
        """Whether it was truncated: the new text is then read from its start."""
        if self._size() >= self._offset:
            return False
        self._offset = 0
        return True

    @property
    def is_read(self) -> bool:
        """Whether it was read to its end."""
        return self._offset >= self._size()

    def pieces(self, most_bytes: int | None = None) -> Iterator[bytes]:
        """New data, up to a maximum of bytes."""
        left = max(0, self._size() - self._offset)
        left = left if most_bytes is None else min(left, most_bytes)
        if not left:
            return
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
                    self._offset += len(piece)
                    left -= len(piece)
                    yield piece
        except OSError:
            return  # it can't be read now; the rest is read the next time

    def skip_to_last(self, size_bytes: int) -> None:
        """Skip all but the last bytes, up to a maximum."""
        self._offset = max(self._offset, self._size() - size_bytes)

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return self._offset

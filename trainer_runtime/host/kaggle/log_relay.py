"""Writes new data of a run's files as lines of a kernel's log; see `core/kaggle/log_frames.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainer_runtime.core.kaggle.log_frames import encode_frames
from trainer_runtime.core.protocol.followed_files import JOURNAL, is_appended, is_replaced
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.answer.followed_run import FollowedRun
from trainer_runtime.host.files.layout import RunFolder

_MOST_AT_ONCE_BYTES = 8 << 20

Emit = Callable[[str], None]


class Relay:
    """Emits what is new of a run, from where the client's copy ends.

    That is all that lies there when the session begins, but for the journal: `journal_bytes`.
    """

    def __init__(self, run: RunFolder, journal_bytes: int, mask: Mask, emit: Emit) -> None:
        have = {**_have(run), JOURNAL: [journal_bytes, None, ""]}
        self._followed = FollowedRun(run.run_id, str(run.root), have)
        self._log = _LoggedFrames(mask, emit)

    def poll(self) -> None:
        """Emit what is new, the journal last."""
        now = time.monotonic()
        if self._followed.refresh(now, thoroughly=False):
            self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)

    def finish(self) -> None:
        """Emit all that is left; nobody writes any more."""
        now = time.monotonic()
        self._followed.refresh(now, thoroughly=True)
        self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)
        while self._followed.behind:
            self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)
        self._log.finish()


class _LoggedFrames:
    """Takes a follower's frames, and emits them masked, at the same offsets.

    What may be the beginning of a secret is held back until what follows it has come.
    """

    def __init__(self, mask: Mask, emit: Emit) -> None:
        self._mask = mask
        self._emit = emit
        self._held: dict[str, tuple[int, bytes]] = {}
        self.sent_bytes = 0

    def frame(self, header: dict[str, Any], data: bytes = b"") -> None:
        self.sent_bytes += len(data)
        name = str(header["file"])
        if "at" not in header:
            whole = self._mask.apply(data, final=True)
            self._print(name, 0, whole, {"whole": True, "mtime_ns": header["mtime_ns"]})
        elif data:
            at, before = self._held.pop(name, (header["at"], b""))
            if header.get("reset"):
                at, before = header["at"], b""
            self._append(name, at, before + data)

    def finish(self) -> None:
        for name, (at, rest) in self._held.items():
            self._print(name, at, self._mask.apply(rest, final=True), {})
        self._held.clear()

    def _append(self, name: str, at: int, data: bytes) -> None:
        masked = self._mask.apply(data, final=False)
        if masked:
            self._print(name, at, masked, {})
        if len(masked) < len(data):
            self._held[name] = (at + len(masked), data[len(masked) :])

    def _print(self, name: str, at: int, data: bytes, whole: Mapping[str, Any]) -> None:
        for line in encode_frames(name, at, data, **whole):
            self._emit(line)


def _have(run: RunFolder) -> dict[str, list[Any]]:
    """The files of the run as they lie there, as a follower is given them as known."""
    have: dict[str, list[Any]] = {}
    for path in [*run.root.glob("*"), *run.root.glob("attempts/*/*")]:
        name = path.relative_to(run.root).as_posix()
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if is_appended(name):
            have[name] = [status.st_size, status.st_ino, ""]
        elif is_replaced(name):
            have[name] = [status.st_size, status.st_mtime_ns]
    return have

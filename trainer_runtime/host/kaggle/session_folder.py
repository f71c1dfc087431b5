"""Creates a run's folder for a session: the last one's output, and what is newer."""

from __future__ import annotations

import base64
import binascii
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import trainer_runtime
from trainer_runtime.core.files.durable import write_atomic, write_synced
from trainer_runtime.core.kaggle.session_order import RUN_FOLDER, KernelOrder
from trainer_runtime.core.protocol.figures import size_text
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.lines import ProtocolError, decode
from trainer_runtime.core.protocol.states import AttemptState
from trainer_runtime.host.files.files import LineReader, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.kaggle.session_inputs import SessionError
from trainer_runtime.host.supervise import attempts

RUNTIME = "trainer_runtime"
# Of the session before, and not the next one's: links, and what the bundle brings again.
_NOT_COPIED = frozenset({RUNTIME, "logs"})
_ROOM_BYTES = 64 << 20


def lay_down(payload: Path, order: KernelOrder, run: RunFolder, before: Path | None) -> None:
    """Make the run's folder what the supervisor of this session is to find.

    `before`: the folder of the run as an earlier session left it, None where none did.

    Raises:
        SessionError: it doesn't fit to what the client has, or on the disk.
        OSError: it can't be written.
    """
    run.root.mkdir(parents=True, exist_ok=True)
    if before is not None:
        _copy(before, run.root)
    _carry_on(run.journal, order)
    _lay_bundle(payload, run.root)
    _take_leave(run, order)


def _copy(before: Path, root: Path) -> None:
    """All regular files, the checkpoints included: this session's output is to stand alone."""
    files = list(_files(before))
    needed = sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(root).free
    if needed + _ROOM_BYTES > free:
        raise SessionError(
            f"The last session left {size_text(needed)}, and {root.parent} has {size_text(free)} "
            "free. Keep fewer checkpoints (checkpoint.keep_latest)."
        )
    for path in files:
        status, target = path.stat(), root / path.relative_to(before)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)  # without its mode: a mounted input is read-only
        os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))


def _files(before: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(before):
        place = Path(folder)
        if place == before:
            names[:] = [name for name in names if name not in _NOT_COPIED]
        if place == before / "checkpoints":  # what was never finished
            names[:] = [name for name in names if name[0] != "."]
        for name in files:
            hidden = name[0] == "." and place in (before, before / "checkpoints")
            path = place / name
            if not hidden and path.is_file() and not path.is_symlink():
                yield path


def _carry_on(journal: Path, order: KernelOrder) -> None:
    """Append to the journal what a session reported that has left no output."""
    there = journal.stat().st_size if journal.exists() else 0
    if order.carried is not None:
        at = order.carried.at
        try:
            data = zlib.decompress(base64.b64decode(order.carried.z, validate=True))
        except (binascii.Error, ValueError, zlib.error) as error:
            raise SessionError(f"What was carried of the journal is damaged: {error}") from None
        if at <= there < at + len(data):
            with journal.open("ab") as file:
                file.write(data[there - at :])
                file.flush()
                os.fsync(file.fileno())
            there = at + len(data)
    if there < order.journal_bytes:
        raise SessionError(
            f"The journal has {there} bytes here, and {order.journal_bytes} are known already: the "
            "output that is mounted is older than the one that this session was made for."
        )


def _lay_bundle(payload: Path, root: Path) -> None:
    """The runtime and the run's files as they are now, `desired.json` with them."""
    runtime = Path(trainer_runtime.__file__).parent
    sources = {payload / RUN_FOLDER: root, runtime: root / RUNTIME}
    for source, target in sources.items():
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                data = path.read_bytes()
                write = write_synced if source == runtime else _replace
                place = target / path.relative_to(source)
                write(place, data, 0o755 if data.startswith(b"#!") else 0o644)


def _replace(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data, mode)


def _take_leave(run: RunFolder, order: KernelOrder) -> None:
    """Have the last session's attempts found as a reboot leaves them: ended, all of them.

    A session without output left only its journal, so configurations are made again from it
    as they were made then. Numbers that the client has seen are used up.
    """
    record = Record()
    for line in LineReader(run.journal).read():
        try:
            record.apply(decode(line))
        except (ProtocolError, TransitionError):
            continue
    for attempt in record.attempts:
        attempts.write_config(run, record, attempt)
        if attempt.state is not AttemptState.ENDED:
            gone = {"pid": 0, "start_ticks": 0, "epoch": f"session {order.number - 1}"}
            write_json(run.attempt(attempt.number).process, {"hold": gone, "trainer": gone})
    if order.newest_attempt > 0:
        run.attempt(order.newest_attempt).root.mkdir(parents=True, exist_ok=True)

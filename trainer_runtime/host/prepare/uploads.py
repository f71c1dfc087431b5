"""Waits for data that the client sends, and reports how much of it has arrived.

Sources come to lie in `<cache>/sources/<fingerprint>/<source>/…`, with `.complete` beside them once
all are there; shards that were made over there come to be as `<cache>/data/<fingerprint>`, models
as `<cache>/models/<name>`. Whatever has not arrived yet stands in `.<name>.receiving` beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer_runtime.core.config import DataConfig, RunConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_fields
from trainer_runtime.core.files.corpus import CorpusFile
from trainer_runtime.host.files.files import read_json

Report = Callable[[str], None]

# In the run's folder, which is the working folder: why the client sends nothing.
REFUSAL_NAME = "upload_refused.json"
MARKER = ".complete"
_POLL_S = 0.5
_REPORT_S = 5.0
_REPORT_STANDSTILL_S = 60.0


class NothingComesError(Exception):
    """The client can't send the data, and says why."""


def await_sources(
    config: RunConfig, are_needless: Callable[[], bool], report: Report
) -> Mapping[str, tuple[CorpusFile, ...]]:
    """Wait until the sources have arrived, however long that takes, or are not needed any more;
    each one's files by its name.

    Raises:
        NothingComesError: the client has given up.
        OSError: what has arrived can't be read.
    """
    data = config.data
    folder = Path(data.cache_dir, "sources", data.fingerprint)
    listing = data.upload.listing if data.upload is not None else ""
    listed = None

    def arrived() -> bool:
        nonlocal listed
        listed = _listed(folder, listing)
        return listed is not None or are_needless()

    _wait(config, folder, arrived, _reporter(data, report))
    return listed or {}


def await_shards(config: RunConfig, is_there: Callable[[], bool], report: Report) -> None:
    """Wait until the shards have arrived, however long that takes.

    Raises:
        NothingComesError: the client has given up.
    """
    data = config.data
    _wait(
        config,
        Path(data.cache_dir, "data", data.fingerprint),
        is_there,
        _reporter(data, report),
    )


def await_wheels(config: RunConfig, report: Report) -> None:
    """Wait until the wheels of the environment have arrived, however long that takes.

    Raises:
        NothingComesError: the client has given up.
    """
    environment = config.environment
    if environment is None or environment.wheels is None:
        return
    label = f"environment: waiting for the wheels of {environment.wheels_from}"
    await_folder(config, Path(environment.wheels), label, report)


def await_folder(
    config: RunConfig,
    folder: Path,
    label: str,
    report: Report,
    *,
    total_bytes: int | None = None,
) -> None:
    """Wait until a folder has arrived as a whole, however long that takes; `label` names it.

    Raises:
        NothingComesError: the client has given up.
    """
    of_all = "so far" if total_bytes is None else f"of {_mib(total_bytes)} MiB"
    unit = " MiB" if total_bytes is None else ""
    _wait(
        config,
        folder,
        (folder / MARKER).exists,
        lambda arrived_bytes: report(f"{label}: {_mib(arrived_bytes)}{unit} {of_all}"),
    )


def _wait(
    config: RunConfig,
    folder: Path,
    is_there: Callable[[], bool],
    emit: Callable[[int], None],
) -> None:
    """`emit` is given the bytes that have arrived, whenever there is something new to report."""
    reported_bytes, reported_s = -1, float("-inf")
    while not is_there():
        refusal = read_json(Path(REFUSAL_NAME)) or {}
        if config.attempt.is_recorded and refusal.get("attempt") == config.attempt.number:
            raise NothingComesError(str(refusal.get("message")))
        since_s = time.monotonic() - reported_s
        if since_s >= _REPORT_S:
            arrived_bytes = _size_bytes(folder)
            if arrived_bytes != reported_bytes or since_s >= _REPORT_STANDSTILL_S:
                reported_bytes, reported_s = arrived_bytes, time.monotonic()
                emit(arrived_bytes)
        time.sleep(_POLL_S)


def _listed(folder: Path, digest: str) -> dict[str, tuple[CorpusFile, ...]] | None:
    """The files of each source, as they were at the sender's; None while they are not all there."""
    try:
        data = (folder / MARKER).read_bytes()
        marker = decode_fields(data, MARKER, max_bytes=MAX_DOCUMENT_BYTES)
        if marker.text("digest") != digest:
            return None
        files_of: dict[str, list[CorpusFile]] = {}
        for row in marker.rows("files", "path", "size_bytes", "modified_ns"):
            source, _, name = row.text("path").partition("/")
            file = CorpusFile(name, row.integer("size_bytes"), row.integer("modified_ns"))
            files_of.setdefault(source, []).append(file)
    except (FileNotFoundError, DecodingError):
        return None
    return {source: tuple(files) for source, files in files_of.items()}


def _size_bytes(folder: Path) -> int:
    """What has arrived, in place or not."""
    total = 0
    for start in (folder, folder.with_name(f".{folder.name}.receiving")):
        for parent, _, names in os.walk(start):
            for name in names:
                try:
                    total += os.lstat(os.path.join(parent, name)).st_size
                except OSError:
                    continue  # renamed into its place just now
    return total


def _reporter(data: DataConfig, report: Report) -> Callable[[int], None]:
    return lambda arrived_bytes: report(_progress(arrived_bytes, data))


def _progress(arrived_bytes: int, data: DataConfig) -> str:
    names = ", ".join(data.upload.sources if data.upload is not None else ())
    if data.prepare == "here":
        return f"data: waiting for the shards of {names}: {_mib(arrived_bytes)} MiB so far"
    total = _mib(data.upload.size_bytes if data.upload is not None else 0)
    return f"data: waiting for the upload of {names}: {_mib(arrived_bytes)} of {total} MiB"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"

"""Reads a sample of Parquet and Arrow files, in a process of its own with bounded memory.

How much a page or a batch takes is known only when it is decompressed, and what the file claims of
it need not be so. The process's standard input says which files; the answer is its output.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from json import dumps
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.inputs.file_kinds import problem_of_parquet
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.runs.data.data_files import DataFile
from trainmaster.runs.data.data_sample import (
    MOST_BYTES,
    MOST_FILES,
    MOST_ROWS,
    Counted,
    Sample,
    chosen_files,
)
from trainmaster.store.detached import SAFELY

_MODULE = "trainmaster.runs.data.column_sample"
_POLL_S = 0.1
# Besides Python and pyarrow. Columns are read by buffers of their own.
_MOST_MEMORY_BYTES = 128 << 20
_BUFFER_BYTES = 256 << 10
_STATUS = Path("/proc/self/status")
_ROWS_AT_ONCE, _ROWS_OF_A_BATCH = 16, 256
_SHOWN = 2000


def read_columns(data_format: str, files: Sequence[DataFile], sample: Sample) -> Counted:
    """Reads files of one format, `parquet` or `arrow`, into `sample`.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: as the caller's check of its reading.
    """
    request = pickle.dumps((data_format, list(files)))
    process = subprocess.Popen(
        [sys.executable, *SAFELY, "-m", _MODULE],
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        answer = _answer(process, request)
    finally:
        process.kill()
        process.wait()
    if process.returncode or not answer:
        return Counted(note=_too_large("Its rows"))
    lacking, counted, read = pickle.loads(answer)
    if lacking is not None:
        raise ImportError(name=lacking)
    sample.take(read)
    return counted if isinstance(counted, Counted) else Counted()


def _answer(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """Raises: OSError: as the caller's check of its reading."""
    unsent: bytes | None = request
    while True:
        check_reading()
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(unsent, timeout=_POLL_S)[0]
        unsent = None


def _too_large(what: str) -> str:
    return f"{what} can't be read within {size_text(_MOST_MEMORY_BYTES)} of memory."


def main() -> None:
    """In the process: answer the request."""
    data_format, files = pickle.loads(sys.stdin.buffer.read())
    sample, counted, lacking = Sample(), None, None
    try:
        _limit_memory()
        counted = _READERS[data_format](files, sample)
    except ImportError as error:
        lacking = error.name
    sys.stdout.buffer.write(pickle.dumps((lacking, counted, sample)))


def _limit_memory() -> None:
    """Where the kernel says how much this process has (Linux), give it so much more and no more.

    Raises:
        ImportError: pyarrow is not installed.
    """
    from pyarrow import parquet  # noqa: F401

    if _STATUS.exists():
        lines = (line.split() for line in _STATUS.read_text().splitlines())
        used = next(int(line[1]) << 10 for line in lines if line[:1] == ["VmData:"])
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = used + _MOST_MEMORY_BYTES
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _read_parquet(files: Sequence[DataFile], sample: Sample) -> Counted:
    from pyarrow import ArrowException, parquet

    rows, counted, note = 0, 0, None
    chosen = chosen_files(files)
    for file in chosen:
        problem = problem_of_parquet(file.path)
        if problem is not None:
            sample.add_damaged(problem)
            continue
        try:
            with parquet.ParquetFile(
                file.path, buffer_size=_BUFFER_BYTES, pre_buffer=False
            ) as opened:
                rows, counted = rows + opened.metadata.num_rows, counted + 1
                most = max(_ROWS_AT_ONCE, MOST_ROWS // len(chosen))
                for number, row in _rows_of_parquet(opened, most):
                    _add_columns(row, f"{file.path.name}, row {number}", sample)
        except MemoryError:
            note = _too_large(f"Some rows of {file.path.name}")
        except (ArrowException, OSError, ValueError, RecursionError) as error:
            sample.add_damaged(f"{file.path.name} can't be read: {error}")
    return _of_all(rows, counted, files, note)


def _rows_of_parquet(opened: Any, most: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first rows, as far as they fit in memory and bytes."""
    number, left = 0, MOST_BYTES // MOST_FILES
    for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
        left -= batch.nbytes
        for row in batch.to_pylist():
            number += 1
            yield number, row
        if left <= 0 or number >= most:
            return


def _read_arrow(files: Sequence[DataFile], sample: Sample) -> Counted:
    import pyarrow

    rows, counted, note = 0, 0, None
    chosen = chosen_files(files)
    most = max(_ROWS_AT_ONCE, MOST_ROWS // max(1, len(chosen)))
    for file in chosen:
        try:
            with pyarrow.memory_map(str(file.path)) as mapped:
                seen = rows_here = 0
                until_bytes = sample.read_bytes + MOST_BYTES // MOST_FILES
                for batch in _batches(pyarrow, mapped):
                    rows_here += batch.num_rows
                    if seen >= most or sample.read_bytes >= until_bytes:
                        continue
                    part = batch.slice(0, min(most - seen, _ROWS_OF_A_BATCH))
                    part.validate(full=True)
                    for start in range(0, len(part), _ROWS_AT_ONCE):
                        for row in part.slice(start, _ROWS_AT_ONCE).to_pylist():
                            seen += 1
                            _add_columns(row, f"{file.path.name}, row {seen}", sample)
                rows, counted = rows + rows_here, counted + 1
        except MemoryError:
            note = _too_large(f"Some rows of {file.path.name}")
        except (pyarrow.ArrowException, OSError, ValueError, RecursionError) as error:
            sample.add_damaged(f"{file.path.name} can't be read: {error}")
    return _of_all(rows, counted, files, note)


def _batches(pyarrow: Any, mapped: Any) -> Iterator[Any]:
    """Of a stream, as saved data sets are, or of a file."""
    options = pyarrow.ipc.IpcReadOptions(use_threads=False)
    try:
        reader = pyarrow.ipc.open_stream(mapped, options=options)
    except pyarrow.ArrowInvalid:
        mapped.seek(0)
        reader = pyarrow.ipc.open_file(mapped, options=options)
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from reader


def _of_all(rows: int, counted: int, files: Sequence[DataFile], note: str | None) -> Counted:
    """The rows of all files by those of the ones that were counted."""
    if not counted:
        return Counted(note=note)
    if counted == len(files):
        return Counted(rows, note=note)
    return Counted(round(rows * len(files) / counted), is_estimated=True, note=note)


def _add_columns(row: Mapping[str, Any], place: str, sample: Sample) -> None:
    shown = dumps(row, ensure_ascii=False, default=str)
    sample.read_bytes += len(shown)
    sample.add_row(row, place, shown[:_SHOWN])


_READERS = {"parquet": _read_parquet, "arrow": _read_arrow}

if __name__ == "__main__":
    main()

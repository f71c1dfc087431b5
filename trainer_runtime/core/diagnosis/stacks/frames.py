"""Parses stack dumps of faulthandler and py-spy into threads and frames.

File and function names come from the training and are untrusted: they are sanitized here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_value
from trainer_runtime.core.protocol.text import shown

_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+(?: \[([^\]]*)\])? \(most recent call")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_MAX_THREADS = 128
_MAX_FRAMES = 128
_LONGEST_NAME = 120
_SHOWN_PARTS = 2  # of a path outside packages: the folder and the file
_LIBRARY = re.compile(r".*/(site-packages|dist-packages|lib/python3\.\d+)/")
_ROOT_FUNCTIONS = frozenset({"<module>", "_run_code", "_run_module_as_main"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One call. `file` is as reported by the process; `line` is 0 if it reported none."""

    file: str
    line: int
    function: str

    @property
    def short(self) -> str:
        """For display: the function, with the end of the file's path and the line."""
        library = _LIBRARY.search(self.file)
        if library is not None:
            return f"{self.function} ({self.file[library.end() :]}:{self.line})"
        parts = [part for part in self.file.split("/") if part]
        return f"{self.function} ({'/'.join(parts[-_SHOWN_PARTS:])}:{self.line})"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread's frames, the innermost first. `current`: the thread that wrote the dump."""

    frames: tuple[Frame, ...]
    name: str = ""
    current: bool = False

    @property
    def is_main(self) -> bool:
        """Whether it is the program's main thread."""
        return self.name == "MainThread" or any(
            frame.function in _ROOT_FUNCTIONS for frame in self.frames[-2:]
        )


def read_stacks(text: str) -> tuple[Thread, ...]:
    """The threads of one process, the main thread first; none if the text contains none.

    `text` is the output of faulthandler or `py-spy dump --json`; of truncated text the complete
    frames are read.
    """
    threads = _from_py_spy(text) if text.lstrip().startswith("[") else _from_faulthandler(text)
    return tuple(sorted(threads, key=lambda thread: (not thread.is_main, not thread.current)))


def _from_faulthandler(text: str) -> list[Thread]:
    threads: list[Thread] = []
    frames: list[Frame] = []
    for line in text.splitlines():
        begins = _THREAD.match(line)
        if begins:
            if len(threads) >= _MAX_THREADS:
                break
            frames = []
            name = _sanitized(begins.group(2) or "")
            threads.append(Thread((), name, current=begins.group(1) == "Current thread"))
            continue
        match = _FRAME.fullmatch(line)
        if match and threads and len(frames) < _MAX_FRAMES:
            number = int(match.group(2)) if match.group(2).isdecimal() else 0
            frames.append(Frame(_sanitized(match.group(1)), number, _sanitized(match.group(3))))
            last = threads[-1]
            threads[-1] = Thread(tuple(frames), last.name, last.current)
    return [thread for thread in threads if thread.frames]


def _from_py_spy(text: str) -> list[Thread]:
    try:
        dump = decode_value(text, "py-spy", max_bytes=MAX_DOCUMENT_BYTES)
    except DecodingError:
        return []
    if not isinstance(dump, list):
        return []
    described = [one for one in dump if isinstance(one, dict)][:_MAX_THREADS]
    threads = [_thread(one) for one in described]
    return [thread for thread in threads if thread.frames]


def _thread(dump: dict[str, Any]) -> Thread:
    frames = dump.get("frames")
    calls = [one for one in frames if isinstance(one, dict)] if isinstance(frames, list) else []
    return Thread(
        tuple(_frame(one) for one in calls[:_MAX_FRAMES]),
        _sanitized(str(dump.get("thread_name") or "")),
        current=dump.get("os_thread_id") is not None and dump["os_thread_id"] == dump.get("pid"),
    )


def _frame(dump: dict[str, Any]) -> Frame:
    line = dump.get("line")
    # Qualified: `Queue.get`, `wrapper.<locals>.inner`.
    name = str(dump.get("name") or "").rpartition(".")[2]
    return Frame(
        _sanitized(str(dump.get("filename") or "")),
        line if isinstance(line, int) else 0,
        _sanitized(name),
    )


def _sanitized(name: str) -> str:
    return shown(name.encode(errors="replace"))[-_LONGEST_NAME:]


def top(frames: Sequence[Frame], most: int) -> list[str]:
    """The innermost frames for display."""
    return [frame.short for frame in frames[:most]]

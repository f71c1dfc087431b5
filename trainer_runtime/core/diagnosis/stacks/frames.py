"""Dumps of stacks as text, read into threads and frames: faulthandler's and py-spy's.

File and function names are the training's own, so anybody's text: they are made harmless here.
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
_MOST_THREADS = 128
_MOST_FRAMES = 128
_LONGEST_NAME = 120
_SHOWN_PARTS = 2  # of a path that is of no package: the folder and the file
_LIBRARY = re.compile(r".*/(site-packages|dist-packages|lib/python3\.\d+)/")
_ROOT_FUNCTIONS = frozenset({"<module>", "_run_code", "_run_module_as_main"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One call. `file` is as the process gave it, `line` 0 where it gave none."""

    file: str
    line: int
    function: str

    @property
    def short(self) -> str:
        """As people read it: the function, and where in its file it stands."""
        library = _LIBRARY.search(self.file)
        if library is not None:
            return f"{self.function} ({self.file[library.end() :]}:{self.line})"
        parts = [part for part in self.file.split("/") if part]
        return f"{self.function} ({'/'.join(parts[-_SHOWN_PARTS:])}:{self.line})"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread's frames, the innermost first. `current`: it is the one that answered."""

    frames: tuple[Frame, ...]
    name: str = ""
    current: bool = False

    @property
    def is_main(self) -> bool:
        """Whether it began as the program itself."""
        return self.name == "MainThread" or any(
            frame.function in _ROOT_FUNCTIONS for frame in self.frames[-2:]
        )


def read_stacks(text: str) -> tuple[Thread, ...]:
    """The threads of one process, the main thread first; none where nothing is to be read.

    `text` is what faulthandler or `py-spy dump --json` wrote; torn text gives what is whole of it.
    """
    threads = _from_py_spy(text) if text.lstrip().startswith("[") else _from_faulthandler(text)
    return tuple(sorted(threads, key=lambda thread: (not thread.is_main, not thread.current)))


def _from_faulthandler(text: str) -> list[Thread]:
    threads: list[Thread] = []
    frames: list[Frame] = []
    for line in text.splitlines():
        begins = _THREAD.match(line)
        if begins:
            if len(threads) >= _MOST_THREADS:
                break
            frames = []
            name = _harmless(begins.group(2) or "")
            threads.append(Thread((), name, current=begins.group(1) == "Current thread"))
            continue
        found = _FRAME.fullmatch(line)
        if found and threads and len(frames) < _MOST_FRAMES:
            number = int(found.group(2)) if found.group(2).isdecimal() else 0
            frames.append(Frame(_harmless(found.group(1)), number, _harmless(found.group(3))))
            last = threads[-1]
            threads[-1] = Thread(tuple(frames), last.name, last.current)
    return [thread for thread in threads if thread.frames]


def _from_py_spy(text: str) -> list[Thread]:
    try:
        told = decode_value(text, "py-spy", max_bytes=MAX_DOCUMENT_BYTES)
    except DecodingError:
        return []
    if not isinstance(told, list):
        return []
    described = [one for one in told if isinstance(one, dict)][:_MOST_THREADS]
    threads = [_thread(one) for one in described]
    return [thread for thread in threads if thread.frames]


def _thread(told: dict[str, Any]) -> Thread:
    frames = told.get("frames")
    calls = [one for one in frames if isinstance(one, dict)] if isinstance(frames, list) else []
    return Thread(
        tuple(_frame(one) for one in calls[:_MOST_FRAMES]),
        _harmless(str(told.get("thread_name") or "")),
        current=told.get("os_thread_id") is not None and told["os_thread_id"] == told.get("pid"),
    )


def _frame(told: dict[str, Any]) -> Frame:
    line = told.get("line")
    # Qualified: `Queue.get`, `wrapper.<locals>.inner`.
    name = str(told.get("name") or "").rpartition(".")[2]
    return Frame(
        _harmless(str(told.get("filename") or "")),
        line if isinstance(line, int) else 0,
        _harmless(name),
    )


def _harmless(name: str) -> str:
    return shown(name.encode(errors="replace"))[-_LONGEST_NAME:]


def top(frames: Sequence[Frame], most: int) -> list[str]:
    """The innermost frames as people read them."""
    return [frame.short for frame in frames[:most]]

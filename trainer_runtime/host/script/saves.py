"""Finds the checkpoints that a program saves, waits until they are written, has them sealed."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.checkpoints.kept_checkpoints import pinned_steps
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import SavesConfig
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.open_files import writers
from trainer_runtime.host.script.seal import SAVED_AT, Request, stamp_of, step_in_name
from trainer_runtime.host.script.whole import files_of

_SETTLED_S = 0.3  # the copy is judged: this only spares copies of what is being written
_MOST_MATCHES = 10_000
_NEWEST = 2


# The newest step that was known at a Unix time.
StepAt = Callable[[float], int]


@dataclass(slots=True)
class _Seen:
    """A match of the pattern: how it stood when it last changed, and since when."""

    stamp: str
    since_s: float
    first_s: float
    handled: bool = False
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one: sealed with `answer`, or why not with its `problem`."""

    place: Path
    problem: str | None
    answer: Mapping[str, Any] = field(default_factory=dict)


class Saves:
    """The checkpoints of one program. `base`: its folder; `python`: which may have PyTorch. It is
    inspected every `inspect_every_s`; one that is written to for `unsettled_s` is reported."""

    def __init__(
        self,
        run: RunFolder,
        config: RunConfig,
        saves: SavesConfig,
        base: Path,
        python: str,
        *,
        inspect_every_s: float = 0.2,
        unsettled_s: float = 1800.0,
    ) -> None:
        self._inspect_every_s, self._unsettled_s = inspect_every_s, unsettled_s
        self._run = run
        self._config = config
        self._saves = saves
        self._base = base
        self._python = python
        self._seen: dict[Path, _Seen] = {}
        self._sealed: set[tuple[str, str]] = set()
        self._reported: dict[Path, int] = {}
        self._child: tuple[Path, str, subprocess.Popen[bytes]] | None = None
        self._inspect_s = 0.0
        self._recall()

    def poll(
        self,
        step_at: StepAt,
        metrics: Mapping[str, Mapping[str, float]],
        *,
        settled: bool = False,
        everything: bool = False,
    ) -> Outcome | None:
        """Inspect once, start what is due; what has come to an end. `step_at`: where the program
        was at a time.

        `settled`: nobody writes any more, so that nothing has to be waited for; only the newest
        matches are taken then, unless `everything` is.
        """
        if self._child is not None:
            return self._outcome()
        now = time.monotonic()
        if now < self._inspect_s and not settled:
            return None
        self._inspect_s = now + self._inspect_every_s
        for place in self._to_seal(everything) if settled else self.matches():
            seen = self._inspect(place, now)
            if seen is None or seen.handled:
                continue
            if settled or (now - seen.since_s >= _SETTLED_S and not self._is_written(place)):
                self._start(place, seen, step_at, metrics)
                return None
            if now - seen.first_s > self._unsettled_s and not seen.is_reported:
                seen.is_reported = True
                return Outcome(place, f"{place.name} has been written to for half an hour")
        return None

    @property
    def pattern(self) -> str:
        return self._saves.path

    @property
    def has_found(self) -> bool:
        """Whether the pattern has matched anything, in this attempt or before."""
        return bool(self._seen or self._sealed or self.matches())

    @property
    def is_busy(self) -> bool:
        return self._child is not None

    def is_left(self, *, everything: bool = False) -> bool:
        """Whether one of the newest matches, or of all, has not been judged as it stands."""
        now = time.monotonic()
        seen = (self._inspect(place, now) for place in self._to_seal(everything))
        return self.is_busy or any(
            seen_save is not None and not seen_save.handled for seen_save in seen
        )

    def announce(self, name: str, step: int) -> None:
        """The program says that this one is whole, and of which step: it need not settle."""
        place = self._base / name
        self._reported[place] = step
        seen = self._inspect(place, time.monotonic())
        if seen is not None:
            seen.since_s, seen.handled = float("-inf"), False

    def step_of(self, place: Path, otherwise: int) -> int:
        """The step of one that could not be read, as its name says."""
        step = step_in_name(place, self._base, self._saves.step)
        return otherwise if step is None else step

    def wait(self, seconds: float) -> None:
        """Wait for the one at work, or so long."""
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child[2].wait(seconds)

    def _recall(self) -> None:
        """What earlier attempts sealed, and stands as it did, is not sealed again."""
        for file in self._run.checkpoints.glob(f"step-*/{SAVED_AT}"):
            saved = read_json(file) or {}
            self._sealed.add((str(saved.get("path", "")), str(saved.get("stamp"))))

    def _to_seal(self, everything: bool) -> list[Path]:
        """All that is kept, or those that a restart may need: a program that saves faster than its
        saves are read is not held up at its end."""
        return self.matches()[: self._saves.keep_latest or (None if everything else _NEWEST)]

    def matches(self) -> list[Path]:
        """All checkpoints that the program has now, the newest first."""
        pattern = os.path.join(glob.escape(str(self._base)), self._saves.path)
        names = glob.glob(pattern, recursive=True)[:_MOST_MATCHES]
        return sorted((Path(name) for name in names), key=_modified_ns, reverse=True)

    def _inspect(self, place: Path, now: float) -> _Seen | None:
        try:
            stamp = stamp_of(place)
        except OSError:
            return None  # it went just now
        seen = self._seen.get(place)
        if seen is None:
            is_sealed = (os.path.relpath(place, self._base), stamp) in self._sealed
            seen = self._seen[place] = _Seen(stamp, now, now, handled=is_sealed)
        elif seen.stamp != stamp:
            first = now if seen.handled else seen.first_s
            seen = self._seen[place] = _Seen(stamp, now, first, is_reported=seen.is_reported)
        return seen

    def _is_written(self, place: Path) -> bool:
        """Whether a process has a file of it open for writing."""
        newest = max(files_of(place), key=_modified_ns, default=None)
        return newest is None or bool(writers(newest))

    def _start(
        self,
        place: Path,
        seen: _Seen,
        step_at: StepAt,
        metrics: Mapping[str, Mapping[str, float]],
    ) -> None:
        seen.handled = True
        self._run.checkpoints.mkdir(exist_ok=True)
        request = Request(
            place=str(place),
            base=str(self._base),
            attempt=self._config.attempt.number,
            stamp=seen.stamp,
            reported=self._reported.pop(place, None),
            fallback=step_at(_modified_ns(place) / 1e9),
            step_pattern=self._saves.step,
            is_one_file=self._saves.is_one_file,
            keep_latest=self._saves.keep_latest,
            held=tuple(pinned_steps(self._run.root)),
            config_sha256=self._config.sha256,
            python=self._python,
            metrics=metrics,
        )
        child = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "seal", "."],
            cwd=self._run.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a signal to the program's group is not for it
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, 10)
        if child.stdin is not None:
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(request.to_json())
        self._child = (place, seen.stamp, child)

    def _outcome(self) -> Outcome | None:
        if self._child is None or self._child[2].poll() is None:
            return None
        place, stamp, child = self._child
        self._child = None
        output = child.stdout.read() if child.stdout is not None else b""
        try:
            answer = decode_fields(output, "the answer").values
        except ValueError:
            answer = {"problem": f"it could not be sealed: exit code {child.returncode}"}
        problem = None if answer.get("problem") is None else str(answer["problem"])
        if problem is not None and self._changed_since(place, stamp):
            return None  # it was being written: it is inspected again
        return Outcome(place, problem, answer if problem is None else {})

    def _changed_since(self, place: Path, stamp: str) -> bool:
        seen = self._inspect(place, time.monotonic())
        return seen is None or seen.stamp != stamp


def _modified_ns(place: Path) -> int:
    try:
        return place.stat().st_mtime_ns
    except OSError:
        return 0

"""Makes a checkpoint of ours from one that a program saved: copied, judged, digested, read back.

A process of its own, which `saves.py` starts: a checkpoint may have gigabytes. The copy is what is
judged, so that a program which overwrites its file meanwhile can't make a torn one count. Under
`checkpoints/step-…/` stands the program's file or folder by its own name, beside `saved_at.json`,
which says where it belongs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.durable import sync_folder, write_synced
from trainer_runtime.core.files.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestError,
    build,
    flushed_entry,
    read,
    verify,
)
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.processes.quick_commands import answer_of
from trainer_runtime.host.script.whole import TornError, files_of, judge

SAVED_AT = "saved_at.json"
# What is being removed, until the relay has reported it; one that is killed leaves it to the next.
PRUNED = ".pruned.json"
_WRITING, _OLD = ".writing-script", ".old-"
_PIECE_BYTES = 4 << 20
_FICLONE = 0x40049409  # of Linux: shares the blocks of a file, where the file system can
_OPEN_WITHIN_S = 1800.0
_OPENER = "trainer_runtime.train.foreign.whole"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Request:
    """`place`: what the program saved, `base`: its folder, `stamp`: `stamp_of` it when it was seen.

    `reported`: its step by the program, `step_pattern`: where its step stands in the path,
    `fallback`: if nothing else gives one. `is_one_file`: the program replaces it. `keep_latest`:
    how many stay, of the program's own, too; `held` stay anyway. `metrics`: values by step.
    """

    place: str
    base: str
    attempt: int
    fallback: int
    stamp: str | None = None
    reported: int | None = None
    step_pattern: str | None = None
    is_one_file: bool = False
    keep_latest: int | None = None
    held: tuple[int, ...] = ()
    config_sha256: str = ""
    python: str = sys.executable
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Request:
        fields = decode_fields(data, "request")
        values: dict[str, Any] = dict(fields.values)
        values["held"] = tuple(fields.integers("held"))
        return cls(**values)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def main(run: Path) -> int:
    """Carry out the request on standard input; prints what came of it.

    Where the relay that made the request was killed meanwhile, nobody reads that: the next one
    finds the checkpoint. A traceback would stand in the training's log.
    """
    request = Request.parse(sys.stdin.buffer.read())
    outcome = json.dumps(seal(run / "checkpoints", request))
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), outcome.encode() + b"\n")
    return 0


def seal(checkpoints: Path, request: Request) -> dict[str, Any]:
    """`{"step", "path", "size_bytes", "write_s", "metrics", "pruned"}`, or `{"problem": …}`."""
    begun = time.monotonic()
    place = Path(request.place)
    writing = checkpoints / _WRITING
    shutil.rmtree(writing, ignore_errors=True)
    try:
        step, manifest = _write(writing, place, request)
        folder = checkpoints / f"step-{step:08d}"
        _put_in_place(writing, folder)
        problems = verify(folder)
    except TornError as error:
        return {"problem": str(error)}
    except OSError as error:
        return {"problem": f"{place.name} can't be copied: {error.strerror or error}"}
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    if problems:
        return {"problem": f"what was written differs when read back: {problems[0]}"}
    return {
        "step": step,
        "path": f"checkpoints/{folder.name}",
        "size_bytes": manifest.size_bytes,
        "write_s": time.monotonic() - begun,
        "metrics": dict(manifest.metrics),
        "pruned": _prune(checkpoints, step, request),
    }


def step_in_name(place: Path, base: Path, pattern: str | None) -> int | None:
    """The step in a path below `base`: by the spec's expression, else the last number of its name;
    None where there is none."""
    name = os.path.relpath(place, base)
    if pattern is not None:
        match = re.search(pattern, name)
        return int(match.group(1)) if match is not None and match.group(1).isdigit() else None
    numbers = _NUMBER.findall(place.stem)
    return int(numbers[-1]) if numbers else None


def _write(writing: Path, place: Path, request: Request) -> tuple[int, Manifest]:
    base = Path(request.base)
    name, stamp = os.path.relpath(place, base), stamp_of(place)
    if request.stamp not in (None, stamp):
        raise TornError(f"{place.name} was written again")
    writing.mkdir(parents=True)
    copy = writing / place.name
    for path in files_of(place):
        target = copy / path.relative_to(place) if place.is_dir() else copy
        target.parent.mkdir(parents=True, exist_ok=True)
        _bring(path, target, link=not request.is_one_file)
    if stamp_of(place) != stamp:
        raise TornError(f"{place.name} was written again while it was copied")
    judged = judge(copy)
    root = copy if copy.is_dir() else writing
    opened = _open_archives(
        [str(root / candidate) for candidate in judged.archives], request.python
    )
    named = step_in_name(place, base, request.step_pattern)
    # An expression that the user gave is meant; a number in a name may be anything.
    inside = (judged.step, opened)
    order = (*inside, named) if request.step_pattern is None else (named, *inside)
    step = next(
        (candidate for candidate in (request.reported, *order) if candidate is not None),
        request.fallback,
    )
    (writing / SAVED_AT).write_text(json.dumps({"path": name, "stamp": stamp}))
    manifest = Manifest(
        step=step,
        attempt=request.attempt,
        time_s=time.time(),
        metrics=request.metrics.get(str(step), {}),
        tags=("latest",),
        config_sha256=request.config_sha256,
        files=tuple(flushed_entry(writing, path) for path in files_of(writing)),
    )
    write_synced(writing / MANIFEST_NAME, build(manifest), 0o644)
    for folder in {candidate.parent for candidate in files_of(writing)}:
        sync_folder(folder)
    return step, manifest


def stamp_of(place: Path) -> str:
    """What changes whenever a checkpoint of a program is written again."""
    files = []
    for path in files_of(place):
        status = path.stat()
        name = path.relative_to(place).as_posix() if path != place else place.name
        files.append([name, status.st_size, status.st_mtime_ns])
    return json.dumps(files, separators=(",", ":"))


def _bring(source: Path, target: Path, *, link: bool) -> None:
    """A second name where the program does not write the file again, else a copy."""
    if link:
        with suppress(OSError):
            os.link(source, target)
            return
    with source.open("rb") as original, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
        except OSError:
            while data := original.read(_PIECE_BYTES):
                copy.write(data)


def _open_archives(paths: list[str], python: str) -> int | None:
    """The step that an archive names, once PyTorch has opened all of them; None without PyTorch.

    Raises:
        TornError: one can't be read.
    """
    if not paths:
        return None
    done = answer_of([python, "-m", _OPENER, *paths], within_s=_OPEN_WITHIN_S)
    if done is None or done.returncode != 0:
        return None
    answer = decode_fields(done.stdout, "the opener's answer")
    problem = answer.find_text("problem")
    if problem is not None:
        raise TornError(problem)
    return answer.find_integer("step")


def _put_in_place(writing: Path, folder: Path) -> None:
    old = folder.with_name(f"{_OLD}{folder.name}")
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(old)
    writing.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _prune(checkpoints: Path, verified: int, request: Request) -> list[int]:
    """Remove what the newest verified one makes needless; the steps that went.

    Without `keep_latest` two stay, and every one whose own file the program still keeps: both are
    the same bytes on the disk. With it the program's own files go as well.
    """
    stored = {
        manifest.step: folder
        for folder, manifest in _stored(checkpoints)
        if manifest.step <= verified
    }
    keep = request.keep_latest or 2
    kept = {*sorted(stored)[-keep:], *request.held}
    gone = sorted(set(stored) - kept)
    if request.keep_latest is None:
        gone = [step for step in gone if not _is_shared(stored[step])]
    if gone:
        write_json(checkpoints / PRUNED, {"steps": gone})
    for step in gone:
        if request.keep_latest is not None and not request.is_one_file:
            _remove_own(stored[step], Path(request.base))
        old = stored[step].with_name(f"{_OLD}{stored[step].name}")
        stored[step].rename(old)
        shutil.rmtree(old, ignore_errors=True)
    return gone


def _stored(checkpoints: Path) -> Iterable[tuple[Path, Manifest]]:
    for folder in checkpoints.glob("step-*"):
        with suppress(ManifestError):
            yield folder, read(folder)


def _is_shared(folder: Path) -> bool:
    """Whether the program still has its own name for the files."""
    own = [path for path in files_of(folder) if path.name not in (SAVED_AT, MANIFEST_NAME)]
    return any(path.stat().st_nlink > 1 for path in own)


def _remove_own(folder: Path, base: Path) -> None:
    """Remove the program's own file or folder, if it is still what was sealed."""
    saved = read_json(folder / SAVED_AT) or {}
    place = base / str(saved.get("path", ""))
    is_within = place.resolve() != base.resolve() and place.resolve().is_relative_to(base.resolve())
    with suppress(OSError):
        if is_within and stamp_of(place) == saved.get("stamp"):
            remove: Callable[[Path], object] = shutil.rmtree if place.is_dir() else os.unlink
            remove(place)

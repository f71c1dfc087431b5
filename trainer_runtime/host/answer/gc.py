"""Removes from the host's cache what no run uses.

An entry is in use where a run's folder on this machine names it (its configurations and what else
its JSON files say, or a link into it), where the client names it (a run that is being
placed), where a process has it open, works in it or was started from it, and while its lock is
held.
Runs are those of every root that has ever used the cache. Where one of them can't be read, nothing
is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import trainer_runtime
from trainer_runtime.core.answers.cache import CacheAnswer, CacheItem
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.host.prepare.cache_roots import registered

_DAY_S = 86400.0
_LARGEST_JSON_BYTES = 8 << 20
_RECEIVING = ".receiving"
# A name like this means one thing wherever it stands; others count behind their folder's name.
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class Kind:
    """One folder of the cache.

    `built`: entries are made here, under a lock beside them; `received`: they come over the link,
    under the lock that `receive` takes. Entries that changed less than `least_age_s` ago are kept:
    who brought them may not have said so yet.
    """

    folder: str
    built: bool = False
    received: bool = False
    least_age_s: float = 0.0


KINDS = (
    Kind("data", built=True, received=True),
    Kind("venvs", built=True, least_age_s=600.0),
    Kind("sources", received=True),
    Kind("models", built=True, received=True, least_age_s=600.0),
    Kind("datasets", built=True, least_age_s=600.0),
    Kind("runtime", received=True, least_age_s=_DAY_S),
)
# What trainings leave in the home of their containers, such as compiled kernels: no run names it.
_HOME = Kind("home", least_age_s=7 * _DAY_S)
# Of the runs themselves nothing is touched but what never came to be one.
_HALF_PLACED = Kind("runs", received=True)


def collect(cache: Path, runs: Path, named: str, *, dry_run: bool) -> CacheAnswer:
    """Remove what is not used; `named`: text in which the client names what it will use."""
    uses = Uses(cache, runs, named)
    removed: list[CacheItem] = []
    kept: list[CacheItem] = []
    for kind, entry in _entries(cache, runs):
        item = CacheItem(kind.folder, entry.name, _size_bytes(entry))
        reason = uses.reason(kind, entry) or _remove(kind, entry, uses, dry_run)
        if reason is None:
            removed.append(item)
        else:
            kept.append(replace(item, reason=reason))
    return CacheAnswer(tuple(removed), tuple(kept))


def _entries(cache: Path, runs: Path) -> Iterator[tuple[Kind, Path]]:
    for kind in KINDS:
        for entry in _listed(cache / kind.folder):
            if not entry.name.endswith(".lock"):
                yield kind, entry
    for entry in _listed(cache / _HOME.folder):
        yield _HOME, entry
    for entry in _listed(runs):
        if _is_leftover(_HALF_PLACED, entry):
            yield _HALF_PLACED, entry


class Uses:
    """Which entries are in use; new runs are read before anything is removed."""

    def __init__(self, cache: Path, runs: Path, named: str) -> None:
        self._cache = cache
        self._runs = runs
        self._texts = {"a run that is on its way": named}
        caches = {str(cache), os.path.realpath(cache)}
        self._processes = _process_references(caches)
        self._has_containers = _has_home({f"{cache}/{_HOME.folder}" for cache in caches})
        self._seen: set[Path] = set()
        self._unreadable: str | None = None

    def reason(self, kind: Kind, entry: Path) -> str | None:
        """Why an entry must stay; None where nothing says so."""
        if _is_leftover(kind, entry):
            return None if _age_s(entry) > _DAY_S else "an upload that may continue"
        if _holds_this_program(entry):
            return "what runs this"
        if _age_s(entry) < kind.least_age_s:
            return f"it changed less than {spoken_duration(kind.least_age_s)} ago"
        return self.user(kind, entry)

    def user(self, kind: Kind, entry: Path) -> str | None:
        """Names the users of the entry, including runs created since the last call."""
        if kind is _HOME:
            return "a container runs" if self._has_containers else None
        self._add_new_runs()
        if self._unreadable is not None:
            return self._unreadable
        for name, text in self._texts.items():
            if _names(text, kind, entry):
                return name
        if _names(self._processes, kind, entry):
            return "a process uses it"
        return None

    def _add_new_runs(self) -> None:
        self._unreadable = None
        try:
            for runs in {self._runs.resolve(), *registered(self._cache)}:
                for folder in _listed(runs):
                    if folder not in self._seen:
                        self._texts[_called(folder, self._runs)] = _run_references(folder)
                        self._seen.add(folder)
        except PermissionError as error:
            self._unreadable = f"{error.filename} may not be read: a run there may use it"


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _called(folder: Path, runs: Path) -> str:
    return f"run {folder.name if folder.parent == runs.resolve() else folder}"


def _run_references(folder: Path) -> str:
    """What a run's JSON files say, and where its links lead to; secrets are not read.

    Raises:
        PermissionError: they are another user's, and can't be read.
    """
    texts = []
    for below in (folder, folder / "attempts"):
        _listed(below)  # a glob would take what it may not read for empty
    files = [*folder.glob("*.json"), *folder.glob("attempts/*/*.json")]
    for file in files:
        with suppress(FileNotFoundError, IsADirectoryError):
            if not file.name.startswith(".") and file.stat().st_size <= _LARGEST_JSON_BYTES:
                texts.append(file.read_text(errors="replace"))
    for path in _listed(folder):
        if path.is_symlink():
            texts.append(os.readlink(path))
    return "\n".join(texts)


def _process_references(caches: set[str]) -> str:
    """The lines of what processes have mapped, were started with or work in that name the cache."""
    texts = []
    for process in (Path("/proc") / name for name in os.listdir("/proc") if name.isdigit()):
        lines: list[str] = []
        with suppress(OSError):
            lines += (process / "cmdline").read_text(errors="replace").split("\0")
        with suppress(OSError):
            lines.append(f"{os.readlink(process / 'cwd')}/")
        with suppress(OSError):
            lines += (process / "maps").read_text(errors="replace").splitlines()
        texts += [line for line in lines if any(cache in line for cache in caches)]
    return "\n".join(texts)


def _has_home(homes: set[str]) -> bool:
    """Whether a process that may be seen from here has one of these as its home."""
    wanted = {f"HOME={home}".encode() for home in homes}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if wanted & set(Path(f"/proc/{name}/environ").read_bytes().split(b"\0")):
                return True
    return False


def _names(text: str, kind: Kind, entry: Path) -> bool:
    wanted = entry.name
    if not _DIGEST.fullmatch(wanted):
        wanted = f"{kind.folder}/{wanted}"
    return re.search(rf"{re.escape(wanted)}(?![A-Za-z0-9._-])", text) is not None


def _is_leftover(kind: Kind, entry: Path) -> bool:
    """Whether it is the half of something: `.<name>.receiving`, `.building-<name>` and the like."""
    return kind is not _HOME and entry.name.startswith(".")


def _age_s(entry: Path) -> float:
    """Since the newest change of it or of anything in it."""
    newest = entry.lstat().st_mtime
    for path in _inside(entry):
        with suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    return time.time() - newest


def _size_bytes(entry: Path) -> int:
    size_bytes = 0
    for path in (entry, *_inside(entry)):
        with suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                size_bytes += path.lstat().st_size
    return size_bytes


def _inside(entry: Path) -> Iterator[Path]:
    if entry.is_symlink():
        return
    for folder, folders, files in os.walk(entry):  # follows no links below
        for name in (*folders, *files):
            yield Path(folder, name)


def _holds_this_program(entry: Path) -> bool:
    here = Path(trainer_runtime.__file__).resolve()
    return entry.resolve() in here.parents


def _remove(kind: Kind, entry: Path, uses: Uses, dry_run: bool) -> str | None:
    """Remove an entry under its lock; the reason where it stays, None where it is gone."""
    try:
        with _locked(kind, entry, dry_run) as held:
            if not held:
                return "its lock is held"
            reason = None if _is_leftover(kind, entry) else uses.user(kind, entry)
            if reason is None and not dry_run:
                _take_away(kind, entry)
            return reason
    except OSError as error:
        return f"can't be removed: {error.strerror}"


@contextmanager
def _locked(kind: Kind, entry: Path, dry_run: bool) -> Iterator[bool]:
    """Whether all of the entry's locks could be had; they are held inside."""
    with ExitStack() as holding:
        held = True
        for lock in _locks(kind, entry):
            if held and (lock.exists() or not dry_run):
                held = _hold(lock, holding)
        yield held


def _hold(lock: Path, holding: ExitStack) -> bool:
    made = lock.parent.name.endswith(_RECEIVING) and not lock.parent.exists()
    descriptor = try_lock(lock)
    if descriptor is None:
        return False
    holding.callback(os.close, descriptor)
    if made:
        holding.callback(shutil.rmtree, lock.parent, ignore_errors=True)
    return True


def _locks(kind: Kind, entry: Path) -> Iterator[Path]:
    if entry.name.endswith(_RECEIVING):
        yield entry / "lock"
    elif not _is_leftover(kind, entry):
        if kind.built:
            yield entry.with_name(f"{entry.name}.lock")
        if kind.received:
            yield entry.with_name(f".{entry.name}{_RECEIVING}") / "lock"


def _take_away(kind: Kind, entry: Path) -> None:
    """Renamed first: a kill on the way leaves a leftover, never half an entry."""
    gone = entry
    if not _is_leftover(kind, entry):
        gone = entry.with_name(f".gone-{entry.name}")
        shutil.rmtree(gone, ignore_errors=True)
        entry.rename(gone)
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone)
    else:
        gone.unlink()

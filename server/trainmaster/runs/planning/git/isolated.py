"""Runs git in an environment of ours, bounded in time, memory and output."""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.protocol.figures import size_text, spoken_duration
from trainer_runtime.core.records import dataclass
from trainmaster.calls.work import spend
from trainmaster.home.scratch_folder import scratch_folder

_WITHIN_S = 60.0  # of all calls about one folder
_MOST_MEMORY_BYTES = 4 << 30  # of address space: packs are mapped
_MOST_WRITTEN_BYTES = 1 << 30
_MOST_CPU_S = 120  # also where we are killed: then nobody else ends it
_MOST_COPIED_BYTES = 512 << 20  # into the scratch folder
_MOST_OUTPUT_BYTES = 64 << 20
_MOST_ERRORS_BYTES = 4096
_PIECE_BYTES = 1 << 16
_CHECKED_EVERY_S = 0.2
_SLOW_S = 0.5


class GitError(Exception):
    """git failed, hung, or said too much."""


class CopyRoom:
    """How much may still be copied for git, of all that one folder needs."""

    def __init__(self) -> None:
        self._left_bytes = _MOST_COPIED_BYTES

    def take(self, size_bytes: int) -> None:
        """Raises: GitError: so much more may not be."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise GitError(f"its indexes have more than {size_text(_MOST_COPIED_BYTES)}")


@dataclass(frozen=True, slots=True)
class Git:
    """A program, a folder of ours for what it writes, and when its time is over (monotonic)."""

    program: str
    scratch: Path
    deadline_s: float
    room: CopyRoom

    def run(
        self,
        git_dir: Path,
        *words: str,
        worktree: Path | None = None,
        folder: Path | None = None,
        stdin: Path | None = None,
        most_bytes: int | None = None,
        while_slow: Callable[[], None] | None = None,
    ) -> bytes:
        """What git prints in `folder`; without `worktree` it sees none. `most_bytes`: what is
        longer is cut. `while_slow`: called once where git takes longer than usual.

        Raises:
            StateError: `READ_TOO_LONG`, the call has ended; git is killed.
            GitError: it failed; without `most_bytes`, also where it printed 64 MiB. And whatever
                `while_slow` raises, git is killed then.
        """
        seen = worktree or self.scratch
        environment = {**_ENVIRONMENT, "GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(seen)}
        environment |= {"HOME": str(self.scratch), "PATH": os.path.dirname(self.program)}
        limit = _MOST_OUTPUT_BYTES if most_bytes is None else most_bytes
        place = folder or self.scratch
        output = self._bounded(words, environment, place, stdin, limit, while_slow)
        if len(output) > limit and most_bytes is None:
            raise GitError("it prints too much")
        return output[:limit]

    def users_excludes(self, git_dir: Path) -> str | None:
        """The file of what the person ignores everywhere, as their own settings of git name it."""
        own = {name: os.environ[name] for name in _USERS if name in os.environ}
        environment = {"LC_ALL": "C", "GIT_DIR": str(git_dir), **own}
        words = ("config", "-z", "--type=path", "--get", "core.excludesFile")
        with suppress(GitError):
            value = self._bounded(words, environment, self.scratch, None, _MOST_ERRORS_BYTES)
            return os.fsdecode(value).rstrip("\0")
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return os.path.join(config, "git", "ignore")

    def _bounded(
        self,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        folder: Path,
        stdin: Path | None,
        limit: int,
        while_slow: Callable[[], None] | None = None,
    ) -> bytes:
        try:
            with open(stdin or os.devnull, "rb") as source:
                process = subprocess.Popen(
                    [self.program, *words],
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(environment),
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            raise GitError(f"it can't be started: {error.strerror}") from error
        with process:
            try:
                _limit(process.pid)
                output, errors = _read(process, limit, self.deadline_s, while_slow)
                if len(output) > limit:
                    return output
                code = _code(process, self.deadline_s)
            except TimeoutError:
                raise GitError(f"it did not end within {spoken_duration(_WITHIN_S)}") from None
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        if code != 0:
            message = errors.decode(errors="replace").strip().splitlines()[:1]
            raise GitError(" ".join(message) or f"it ended with {code}")
        return output


_USERS = ("HOME", "XDG_CONFIG_HOME", "PATH")
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_CEILING_DIRECTORIES": "/",
}


@contextmanager
def isolated_git(repository: str) -> Iterator[Git]:
    """git from the search path, never one of the repository itself.

    Raises:
        GitError: there is none.
    """
    program = _program(repository)
    if program is None:
        raise GitError("git is not installed")
    with scratch_folder("trainmaster-git-") as folder:
        yield Git(program, folder, time.monotonic() + _WITHIN_S, CopyRoom())


def _program(repository: str) -> str | None:
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(place):
            program = shutil.which("git", path=place)
            real = os.path.realpath(program) if program else ""
            if program and not f"{real}/".startswith(f"{repository.rstrip('/')}/"):
                return program
    return None


def _limit(pid: int) -> None:
    """Bound a process; one that has ended already needs no bound."""
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
        resource.prlimit(pid, resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))


def _read(
    process: subprocess.Popen[bytes],
    limit: int,
    deadline_s: float,
    while_slow: Callable[[], None] | None,
) -> tuple[bytes, bytes]:
    """What a process prints, until its end or beyond `limit`, and the first of its errors.

    Raises:
        TimeoutError: the time is over.
    """
    slow_s = time.monotonic() + _SLOW_S
    assert process.stdout is not None
    assert process.stderr is not None
    printed = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in printed:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map() and len(printed[process.stdout]) <= limit:
            _check(deadline_s)
            if while_slow is not None and time.monotonic() > slow_s:
                while_slow()
                while_slow = None
            for key, _ in selector.select(_CHECKED_EVERY_S):
                data = os.read(key.fd, _PIECE_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                printed[key.data].extend(data)
                del printed[process.stderr][_MOST_ERRORS_BYTES:]
    return bytes(printed[process.stdout]), bytes(printed[process.stderr])


def _code(process: subprocess.Popen[bytes], deadline_s: float) -> int:
    """What a process that prints no more ends with. Raises: TimeoutError: the time is over."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_CHECKED_EVERY_S)
        _check(deadline_s)


def _check(deadline_s: float) -> None:
    """Raises: TimeoutError: the time is over; StateError: that of the call is."""
    spend()
    if time.monotonic() > deadline_s:
        raise TimeoutError

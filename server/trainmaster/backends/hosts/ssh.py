"""A machine over SSH as a host.

What was found out about it (its user's home, its interpreter) is kept beside its pinned keys, so
that a command asks for it once and not every time.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.interpreter import find_python
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.backends.hosts.trees import put_tree
from trainmaster.backends.ssh import Completed, Stream
from trainmaster.backends.ssh.link import Link
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets, read_package
from trainmaster.home.paths import Home
from trainmaster.store.host_record import HostRecord

_QUICK_S = 30.0
_REMOVE_S = 600.0
_NOTED_EVERY_S = 1.0
_NO_FOLDER, _NOT_FOUND = 126, 127
_PROOF = "trainer_runtime/__init__.py"
# Placeholder for the folder of the runtime, where a machine has none.
CARRIED = "trainer_runtime (carried)"
_MODULE = ("-m", "trainer_runtime")
# `python -m trainer_runtime WORDS...` out of a file without a name, for its children too. Not from
# the working folder, which `sys.path` begins with: modules there are foreign.
_START = """\
import os,sys,zlib
n=int(sys.argv[1]);packed=b''
while len(packed)<n:
 read=os.read(0,n-len(packed));packed+=read
 if not read:sys.exit('the runtime did not arrive')
try:f=os.memfd_create('trainer_runtime')
except (AttributeError,OSError):
 import tempfile;kept=tempfile.TemporaryFile();f=kept.fileno()
left=memoryview(zlib.decompress(packed))
while left:left=left[os.write(f,left):]
path='/proc/%d/fd/%d'%(os.getpid(),f);sys.path[0]=path;sys.argv[1:2]=()
own=os.environ.get('PYTHONPATH');os.environ['PYTHONPATH']=path+(os.pathsep+own if own else '')
import runpy;runpy.run_module('trainer_runtime',run_name='__main__',alter_sys=True)
"""


def note_reached(path: Path) -> None:
    """Record at `Home.reached` of a host that it gives answers now."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


class SshHost:
    """Files by SFTP where the machine has it, commands by its login shell."""

    def __init__(self, record: HostRecord, home: Home) -> None:
        self.name = record.name
        self._record = record
        self._known = home.found(record.name)
        self._reached = home.reached(record.name)
        self._noted_s = float("-inf")
        self._link = Link(record, home.pins(record.name), self._note_answer)
        self._runtime: str | None = None

    async def root(self) -> str:
        return await self._absolute(self._record.root)

    async def cache(self) -> str:
        if self._record.cache is not None:
            return await self._absolute(self._record.cache)
        return posixpath.join(await self.root(), "cache")

    async def python(self) -> str:
        remembered = self._remembered()
        if "python" not in remembered:
            remembered["python"] = await find_python(self._plain)
            self._remember(remembered)
        return remembered["python"]

    async def runtime(self) -> str:
        if self._runtime is None:
            folder = await self._runtime_folder(runtime_files())
            if await self.size(posixpath.join(folder, _PROOF)) is None:
                return CARRIED
            self._runtime = folder
        return self._runtime

    async def place_runtime(self) -> str:
        if await self.runtime() == CARRIED:
            files = runtime_files()
            folder = await self._runtime_folder(files)
            await self._link.persist(
                lambda: put_tree(self, files, folder, whole=True, compiles=True)
            )
            self._runtime = folder
        return await self.runtime()

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        sent = self._sent(command, folder)
        done = await self._link.repeat(
            lambda transport: transport.run(
                sent.command, folder=sent.folder, stdin=sent.ahead + stdin, timeout_s=timeout_s
            )
        )
        self._learn(done.code)
        return done

    @asynccontextmanager
    async def stream(self, command: Sequence[str], *, folder: str) -> AsyncIterator[Stream]:
        sent = self._sent(command, folder)
        async with (
            self._link.use() as transport,
            transport.stream(sent.command, folder=sent.folder) as stream,
        ):
            if sent.ahead:
                await stream.write(sent.ahead)
            yield _Learning(stream, self._learn)

    async def put_folder(
        self, folder: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        await self._link.persist(
            lambda: put_tree(
                self, files, folder, whole=True, executable=executable, near=self._runtime
            )
        )

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._link.repeat(lambda transport: transport.put(path, data, mode=mode))

    async def size(self, path: str) -> int | None:
        return await self._link.repeat(lambda transport: transport.size(path))

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        return await self._link.repeat(lambda transport: transport.get(path, offset, limit)) or b""

    async def names(self, folder: str) -> list[str]:
        return await self._link.repeat(lambda transport: transport.names(folder))

    async def remove(self, path: str) -> int:
        parts = path.split("/")
        if parts[0] or ".." in parts or "runs" not in parts[2:-1]:
            raise HostError(
                "UNSAFE_NAME",
                f"{path} does not lie among the runs of a root of {self.name}.",
                "Remove it by hand if that is what you want.",
            )
        failure = Failure(
            f"{path} on {self.name} can't be removed",
            "Make the folder writable for the host's user.",
            code="ROOT_NOT_WRITABLE",
            retryable=False,
        )
        call = RuntimeCall("remove", [path], failure, _REMOVE_S, acts=True)
        return await runtime_call(self, call, lambda answer: answer.integer("freed_bytes"))

    async def disconnect(self) -> None:
        await self._link.disconnect()

    def _learn(self, code: int) -> None:
        """Forget what an exit code shows to be missing; the next command searches for it again."""
        if code == _NOT_FOUND:
            self._known.unlink(missing_ok=True)  # perhaps a removed interpreter
        if code == _NO_FOLDER:
            self._runtime = None  # or a runtime that was removed after long disuse

    def _sent(self, command: Sequence[str], folder: str) -> Sent:
        """The command, with the runtime ahead of its input where the machine lacks that; Python
        leaves no bytecode beside a runtime that is there."""
        if folder == CARRIED:
            return carry(command)
        if folder == self._runtime:
            return Sent([command[0], "-B", *command[1:]], folder)
        return Sent(command, folder)

    async def _runtime_folder(self, files: Mapping[str, bytes]) -> str:
        digest = hashlib.sha256(
            b"".join(name.encode() + b"\0" + data + b"\0" for name, data in files.items())
        ).hexdigest()[:16]
        return posixpath.join(await self.cache(), "runtime", digest)

    async def _absolute(self, path: str) -> str:
        if path != "~" and not path.startswith("~/"):
            return path
        remembered = self._remembered()
        if "home" not in remembered:
            done = await self._plain(["/bin/sh", "-c", 'echo "$HOME"'])
            if done.code != 0 or not done.output.startswith("/"):
                raise HostError(
                    "SHELL_UNUSABLE",
                    f"The login shell of {self.name} knows no HOME.",
                    "Name an absolute folder: "
                    f"{command('hosts add', self.name, 'ADDRESS', '--root', 'DIR')}.",
                )
            remembered["home"] = done.output.strip()
            self._remember(remembered)
        return posixpath.join(remembered["home"], path[2:]) if path != "~" else remembered["home"]

    async def _plain(
        self, command: Sequence[str], *, stdin: bytes = b"", timeout_s: float = _QUICK_S
    ) -> Completed:
        """Run in the login folder; needs no runtime there."""
        return await self._link.repeat(
            lambda transport: transport.run(command, stdin=stdin, timeout_s=timeout_s)
        )

    def _note_answer(self) -> None:
        """Record when the host was last reached, by any command."""
        now_s = time.monotonic()
        if now_s - self._noted_s < _NOTED_EVERY_S:
            return
        self._noted_s = now_s
        note_reached(self._reached)

    def _remembered(self) -> dict[str, str]:
        try:
            remembered: dict[str, str] = json.loads(self._known.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return remembered

    def _remember(self, facts: Mapping[str, str]) -> None:
        self._known.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._known, json.dumps(dict(facts)).encode())


class _Learning:
    """A stream that reports its exit code to the host."""

    def __init__(self, stream: Stream, learn: Callable[[int], None]) -> None:
        self._learn = learn
        self.write, self.finish, self.read = stream.write, stream.finish, stream.read
        self._end = stream.end

    async def end(self) -> tuple[int, str]:
        code, errors = await self._end()
        self._learn(code)
        return code, errors


@dataclass(frozen=True, slots=True)
class Sent:
    """A command as it goes to a machine; `ahead`: what goes before all else into its input."""

    command: Sequence[str]
    folder: str
    ahead: bytes = b""


def carry(command: Sequence[str]) -> Sent:
    """`PYTHON -m trainer_runtime WORDS...` with the runtime itself."""
    python, module = command[0], tuple(command[1:3])
    if module != _MODULE:
        raise ValueError(f"{command[:3]} is not a command of the runtime")
    packed = _packed()
    start = [python, "-c", f"exec({_START!r})", str(len(packed)), *command[3:]]
    return Sent(start, "/", packed)


@cache
def runtime_files() -> Mapping[str, bytes]:
    """The modules of the runtime by their paths, as they are when they are first needed: later
    changes would not fit what this process imported."""
    return read_package(find_assets().runtime, ".py")


@cache
def _packed() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name, data in runtime_files().items():
            opened.writestr(zipfile.ZipInfo(name), data)
    return zlib.compress(archive.getvalue(), 6)

"""A host with a shell, and a launcher on it, as a backend."""

from __future__ import annotations

import json
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.corpus import examine_input, has_shards, list_corpus
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress, put_tree
from trainmaster.backends.launchers import Launcher
from trainmaster.backends.multiplexed import MultiplexedFollower
from trainmaster.backends.polled import PolledFollower
from trainmaster.backends.ssh import Completed
from trainmaster.words.errors import HostError

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts

_VERIFY_TIMEOUT_S = 3600.0
_FACTS_TIMEOUT_S = 30.0
_LIST_TIMEOUT_S = 300.0
_INSPECT_TIMEOUT_S = 35.0


class HostedBackend:
    """`host` says how files and commands get there, `launcher` what holds the supervisor.

    `multiplexed`: runs are followed by a process on the host rather than by asking for each file.
    `recorded`: where a run that is on record lies, whatever the host's root is by now.
    """

    def __init__(
        self,
        host: Host,
        launcher: Launcher,
        *,
        multiplexed: bool = False,
        recorded: Callable[[str], str | None] = lambda _run_id: None,
    ) -> None:
        self._host = host
        self._recorded = recorded
        self._multiplexed = multiplexed
        self._launcher = launcher
        self.name = host.name
        self.launcher_name = launcher.name

    async def folder(self, run_id: str) -> str:
        return self._recorded(run_id) or posixpath.join(await self._host.root(), "runs", run_id)

    async def facts(self, python: str | None) -> HostFacts:
        from trainmaster.backends.hosts.facts import examine_host

        return await examine_host(self._host, python, timeout_s=_FACTS_TIMEOUT_S)

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        await self._host.place_runtime()
        await self._host.put_folder(await self.folder(run_id), files, executable)

    async def request(self, run_id: str, desired: Desired) -> None:
        path = posixpath.join(await self.folder(run_id), "desired.json")
        await self._host.put_file(path, json.dumps(desired.to_dict()).encode())

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        path = posixpath.join(await self.folder(run_id), ".secrets.json")
        given = {"v": 1, "generation": generation, "values": dict(values)}
        await self._host.put_file(path, json.dumps(given).encode(), mode=0o600)

    async def withdraw_secrets(self, run_id: str) -> bool:
        return False

    async def deliver_alerts(self, run_id: str, given: Mapping[str, Any]) -> None:
        path = posixpath.join(await self.folder(run_id), ".alerts.json")
        await self._host.put_file(path, json.dumps({"v": 1, **given}).encode(), mode=0o600)

    async def start(self, run_id: str) -> bool:
        started = await self._launcher.ensure_supervisor(self._host, await self.folder(run_id))
        with suppress(HostError):  # those who read send it along until then
            await self._host.place_runtime()
        return started

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[Follower]:
        kind = MultiplexedFollower if self._multiplexed else PolledFollower
        follower = kind(self._host, self.folder)
        try:
            yield follower
        finally:
            await follower.close()

    async def examine_source(self, kind: str, target: str, begin: str) -> Mapping[str, Any]:
        done = await self._host.run(
            [
                *(await self._host.python(), "-m", "trainer_runtime", "source"),
                *("--begin", begin, "--", kind, target),
            ],
            folder=await self._host.runtime(),
            timeout_s=_FACTS_TIMEOUT_S,
        )
        return self._found(done, "source", target)

    async def look_at_output(self, python: str | None, folder: str) -> Mapping[str, Any]:
        elsewhere = [] if python else ["--cache", await self._host.cache()]
        interpreter = python or await self._host.python()
        done = await self._host.run(
            [interpreter, "-m", "trainer_runtime", "output", *elsewhere, "--", folder],
            folder=await self._host.place_runtime(),
            timeout_s=_VERIFY_TIMEOUT_S,
        )
        if done.code != ExitCode.UNUSABLE:
            return self._found(done, "output", folder)
        raise HostError(
            "ENVIRONMENT_UNUSABLE",
            f"Reading checkpoints takes PyTorch; {python or 'no interpreter'} on {self.name} "
            f"{'lacks' if python else 'has'} it.",
            "Name one that has it (`--python PATH`), or install it there (`pip install torch`).",
            field="python",
        )

    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        return await list_corpus(self._host, asked)

    async def examine_input(self, kind: str, name: str, revision: str | None) -> Mapping[str, Any]:
        return await examine_input(self._host, kind, name, revision)

    async def has_shards(self, fingerprint: str) -> bool:
        return await has_shards(self._host, fingerprint)

    async def try_folder(self, path: str, *, write: bool) -> str | None:
        how = ["--write"] if write else []
        done = await self._host.run(
            [await self._host.python(), "-m", "trainer_runtime", "try", *how, "--", path],
            folder=await self._host.runtime(),
            timeout_s=_FACTS_TIMEOUT_S,
        )
        try:
            problem: str | None = json.loads(done.output)["problem"]
        except ValueError:
            problem = f"{path} could not be tried: {(done.errors or done.output).strip()[-300:]}"
        return problem

    async def send(
        self,
        files: Sequence[TreeFile],
        destination: str,
        *,
        whole: bool = False,
        mark: bool = False,
        on_progress: OnTreeProgress | None = None,
    ) -> None:
        await put_tree(
            self._host, files, destination, whole=whole, mark=mark, on_progress=on_progress
        )

    async def refuse_upload(self, run_id: str, attempt: int, message: str) -> None:
        path = posixpath.join(await self.folder(run_id), "upload_refused.json")
        told = {"attempt": attempt, "message": message}
        await self._host.put_file(path, json.dumps(told).encode())

    async def verify(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        done = await self._host.run(
            [await self._host.python(), "-B", "-m", "trainer_runtime", "verify", "."],
            folder=await self.folder(run_id),
            timeout_s=_VERIFY_TIMEOUT_S,
        )
        if done.code != 0:
            raise HostError(
                "INTERNAL",
                f"The checkpoints on {self.name} could not be read: {done.errors.strip()[-300:]}",
                "Run `python3 -m trainer_runtime verify .` in the run's folder by hand.",
                retryable=True,
            )
        found: list[Mapping[str, Any]] = json.loads(done.output)["checkpoints"]
        return found

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> Mapping[str, Any]:
        allowed = ["--allow-py-spy"] if allow_py_spy else []
        folder = await self.folder(run_id)
        python = await self._host.python()
        done = await self._host.run(
            [python, "-m", "trainer_runtime", "inspect", *allowed, "--", folder, str(attempt)],
            folder=await self._host.runtime(),
            timeout_s=_INSPECT_TIMEOUT_S,
        )
        try:
            found: Mapping[str, Any] = json.loads(done.output)
        except ValueError as error:
            raise HostError(
                "INTERNAL",
                f"The processes of {run_id} on {self.name} could not be looked at: "
                f"{(done.errors or done.output).strip()[-300:]}",
                f"Look at {folder} there; `trainmaster doctor` checks the host.",
                retryable=True,
            ) from error
        return found

    async def files(self, run_id: str, pattern: str) -> Sequence[Mapping[str, Any]]:
        return await self._ask(run_id, "files", pattern, timeout_s=_LIST_TIMEOUT_S)

    async def read(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        return await self._host.read(f"{await self.folder(run_id)}/{path}", offset, limit)

    async def digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        wanted = (path, str(chunk), str(size_bytes))
        told = await self._ask(run_id, "digest", *wanted, timeout_s=_LIST_TIMEOUT_S)
        found: str | None = told[0]["sha256"]
        return found

    async def contents(self, run_id: str) -> list[str]:
        folder = await self.folder(run_id)
        names = [name for name in await self._host.names(folder) if name != "checkpoints"]
        saved = await self._host.names(posixpath.join(folder, "checkpoints"))
        return sorted([*names, *(f"checkpoints/{name}" for name in saved)])

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        folder = await self.folder(run_id)
        freed = 0
        for name in names:
            freed += await self._host.remove(folder if name == "." else f"{folder}/{name}")
        return freed

    async def disconnect(self) -> None:
        await self._host.disconnect()

    def _found(self, done: Completed, what: str, target: str) -> Mapping[str, Any]:
        """What the box's side tells under a name, or the error that it refuses with instead."""
        try:
            answer = json.loads(done.output)
        except ValueError:
            raise HostError(
                "INTERNAL",
                f"{self.name} could not be asked for {target}: "
                f"{_one_line((done.errors or done.output).strip()[-300:])}",
                "`trainmaster doctor` checks the host.",
                retryable=True,
            ) from None
        if "refused" in answer:
            refused = answer["refused"]
            message, fix = _one_line(refused["message"]), _one_line(refused["fix"])
            raise HostError(str(refused["code"]), message, fix)
        found: Mapping[str, Any] = answer[what]
        return found

    async def _ask(
        self, run_id: str, command: str, *arguments: str, timeout_s: float
    ) -> list[Mapping[str, Any]]:
        """What the box's side says about a run, a line of JSON each."""
        folder = await self.folder(run_id)
        done = await self._host.run(
            [await self._host.python(), "-m", "trainer_runtime", command, "--", folder, *arguments],
            folder=await self._host.runtime(),
            timeout_s=timeout_s,
        )
        try:
            if done.code == 0:
                return [json.loads(line) for line in done.output.splitlines()]
        except ValueError:
            pass
        raise HostError(
            "INTERNAL",
            f"The files of {run_id} on {self.name} could not be listed: "
            f"{(done.errors or done.output).strip()[-300:]}",
            f"Look at {folder} there; `trainmaster doctor` checks the host.",
            retryable=True,
        )


def _one_line(text: object) -> str:
    """What a box says of names that anybody may have given."""
    return shown(" ".join(str(text).splitlines()).encode(errors="replace"))

"""A host with a shell, and a launcher on it, as a backend."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.desired import Desired
from trainmaster.errors import HostError
from trainmaster.hosts import Host
from trainmaster.launchers import Launcher
from trainmaster.mirror import (
    APPENDED_IN_ATTEMPT,
    APPENDED_IN_RUN,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
    PlacementMirror,
)
from trainmaster.plan.facts import HostFacts

_CHUNK_BYTES = 8 << 20
_WHOLE_FILE_BYTES = 16 << 20
_VERIFY_TIMEOUT_S = 3600.0
_FACTS_TIMEOUT_S = 30.0


class HostedBackend:
    """`host` says how files and commands get there, `launcher` what holds the supervisor."""

    def __init__(self, host: Host, launcher: Launcher) -> None:
        self._host = host
        self._launcher = launcher
        self.name = host.name
        self.launcher_name = launcher.name

    async def folder(self, run_id: str) -> str:
        return posixpath.join(await self._host.root(), "runs", run_id)

    async def facts(self, python: str | None) -> HostFacts:
        from trainmaster.hosts.facts import examine_host

        return await examine_host(self._host, python, timeout_s=_FACTS_TIMEOUT_S)

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        await self._host.put_folder(await self.folder(run_id), files, executable)

    async def request(self, run_id: str, desired: Desired) -> None:
        path = posixpath.join(await self.folder(run_id), "desired.json")
        await self._host.put_file(path, json.dumps(desired.to_dict()).encode())

    async def start(self, run_id: str) -> bool:
        return await self._launcher.ensure_supervisor(self._host, await self.folder(run_id))

    async def copy_new(self, run_id: str, mirror: PlacementMirror) -> bool:
        # The journal first: what it tells of an attempt's end is then never ahead of that
        # attempt's own files, which are read after it.
        folder = await self.folder(run_id)
        found = False
        for name in APPENDED_IN_RUN:
            found |= await self._copy_appended(folder, name, mirror)
        for number in await self._host.names(posixpath.join(folder, "attempts")):
            for name in APPENDED_IN_ATTEMPT:
                found |= await self._copy_appended(folder, f"attempts/{number}/{name}", mirror)
            for name in REPLACED_IN_ATTEMPT:
                if mirror.size(f"attempts/{number}/{name}") == 0:  # written once
                    await self._copy_whole(folder, f"attempts/{number}/{name}", mirror)
        if found:
            for name in REPLACED_IN_RUN:
                await self._copy_whole(folder, name, mirror)
        return found

    async def verify(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        done = await self._host.run(
            [await self._host.python(), "-m", "trainer_runtime", "verify", "."],
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

    async def _copy_appended(self, folder: str, name: str, mirror: PlacementMirror) -> bool:
        path = posixpath.join(folder, name)
        size, offset = await self._host.size(path) or 0, mirror.size(name)
        found = offset < size
        while offset < size:
            data = await self._host.read(path, offset, min(_CHUNK_BYTES, size - offset))
            if not data:
                break
            mirror.append(name, data)
            offset += len(data)
        return found

    async def _copy_whole(self, folder: str, name: str, mirror: PlacementMirror) -> None:
        data = await self._host.read(posixpath.join(folder, name), 0, _WHOLE_FILE_BYTES)
        if data:
            mirror.replace(name, data)

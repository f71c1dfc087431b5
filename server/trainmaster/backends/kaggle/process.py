"""The Kaggle client in a worker process (`worker.py`)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainmaster.backends.kaggle.client import (
    Kernel,
    KernelPush,
    KernelStatus,
    LogPage,
    Pushed,
    Quota,
    SourcesLeftOutError,
    quota_of,
)
from trainmaster.backends.kaggle.credentials import with_keys
from trainmaster.backends.kaggle.datasets import new_folder
from trainmaster.errors.errors import CloudError
from trainmaster.home.paths import Home
from trainmaster.store.detached import SAFELY

_MODULE = "trainmaster.backends.kaggle.worker"
_LONGEST_ANSWER_BYTES = 64 << 20
# Plans read the quota first, and a tool call lasts at most 45 seconds.
_QUOTA_S = 25.0
_FETCH_S = 3600.0
_UPLOAD_S = 6 * 3600.0
_PROCESSING_S = 3600.0
_LONGEST_PAUSE_S = 10.0
_SETTLED = ("ready", "failed", "deleted", None)


class KaggleProcess:
    """Implements `client.Kaggle` with one process, started at the first request and restarted when
    it has died; requests are concurrent. Keys come from `environment` (None: this process's), the
    home's `secrets.env`, then Kaggle's files; only the worker gets them. `answer_s`: timeout of
    short requests."""

    answer_s = 120.0

    def __init__(self, home: Home, environment: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._environment = os.environ if environment is None else environment
        self._process: _Process | None = None
        self._starting = asyncio.Lock()
        self._account: str | None = None

    async def account(self) -> str:
        if self._account is None:
            self._account = str(await self._ask("account"))
        return self._account

    async def push(self, push: KernelPush) -> Pushed:
        metadata = {
            "slug": push.slug,
            "title": push.title,
            "language": "python",
            "kernel_type": "script",
            "is_private": True,
            "enable_gpu": push.gpu,
            "enable_tpu": False,
            "enable_internet": push.internet,
            "dataset_sources": list(push.dataset_sources),
            "kernel_sources": list(push.kernel_sources),
            "competition_sources": [],
            "model_sources": [],
        }
        accelerator = push.accelerator if push.gpu else None
        answer = await self._ask(
            "push",
            metadata=metadata,
            code=push.code,
            timeout_s=push.timeout_s,
            accelerator=accelerator,
        )
        if answer["invalid"]:
            raise _left_out(answer["ref"], tuple(map(str, answer["invalid"])))
        return Pushed(answer["ref"], answer["version"], answer["url"])

    async def status(self, ref: str) -> KernelStatus | None:
        answer = await self._ask("status", ref=ref)
        return None if answer is None else KernelStatus(**answer)

    async def kernel(self, ref: str, marker: str) -> Kernel | None:
        answer = await self._ask("kernel", ref=ref, marker=marker)
        return None if answer is None else Kernel(**answer)

    async def log(self, ref: str, after: int, wait_s: float) -> LogPage:
        answer = await self._ask("log", self.answer_s + wait_s, ref=ref, after=after, wait_s=wait_s)
        events = [(stream, data) for stream, data in answer["events"]]
        return LogPage(events, answer["next_index"], answer["ended"])

    async def outputs(self, ref: str) -> Sequence[str]:
        names: list[str] = await self._ask("outputs", ref=ref)
        return names

    async def fetch_output(self, ref: str, name: str, path: Path) -> None:
        await self._ask("fetch_output", _FETCH_S, ref=ref, name=name, path=str(path.absolute()))

    async def quota(self) -> Quota:
        return quota_of(await self._ask("quota", min(_QUOTA_S, self.answer_s)))

    async def put_dataset(self, slug: str, title: str, folder: Path) -> str:
        place = str(folder.absolute())
        ref = str(await self._ask("save_dataset", _UPLOAD_S, slug=slug, title=title, folder=place))
        if await self.finished_dataset(slug) != "ready":
            raise CloudError(
                "KAGGLE_REFUSED",
                f"Kaggle could not process the data set {ref}.",
                "Check it on Kaggle's page; the next attempt sends it again.",
            )
        return ref

    async def dataset_state(self, slug: str) -> str | None:
        state: str | None = await self._ask("dataset_state", slug=slug)
        return state

    async def finished_dataset(self, slug: str) -> str | None:
        pause_s = 0.25
        try:
            async with asyncio.timeout(_PROCESSING_S):
                while (state := await self.dataset_state(slug)) not in _SETTLED:
                    await asyncio.sleep(pause_s)
                    pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
        except TimeoutError:
            raise _gone(f"The data set {slug} is still being processed.") from None
        return state

    async def datasets(self, search: str) -> Mapping[str, Any]:
        datasets: dict[str, Any] = await self._ask("datasets", search=search)
        return datasets

    async def remove_dataset(self, slug: str) -> None:
        await self._ask("remove_dataset", slug=slug)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    async def _ask(self, do: str, bound_s: float | None = None, /, **arguments: Any) -> Any:
        async with self._starting:
            if self._process is None or self._process.is_over:
                self._process = await _Process.start(self._home, self._environment)
            process = self._process
        try:
            async with asyncio.timeout(bound_s or self.answer_s):
                return await process.ask(do, arguments)
        except TimeoutError:
            await self._retire(process)
            raise _gone("Kaggle's client gave no answer in time.") from None
        except CloudError as error:
            if error.code in ("KAGGLE_KEY_MISSING", "KAGGLE_KEY_REFUSED", "PACKAGE_MISSING"):
                await self._retire(process)  # the next one reads the credentials again
            raise

    async def _retire(self, process: _Process) -> None:
        """Send it no further requests; pending answers may still arrive."""
        if self._process is process:
            self._process = None
        await process.end_when_idle()


class _Process:
    """One worker process, and its pending answers."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._retired = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, home: Home, environment: Mapping[str, str]) -> _Process:
        """Raises: `CloudError`: `SECRET_INVALID`."""
        with_credentials = with_keys(home, environment)
        folder = new_folder(home)  # in the home: archives may not fit into /tmp
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *SAFELY, "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**with_credentials, "TMPDIR": str(folder)},
            cwd=folder,
            limit=_LONGEST_ANSWER_BYTES,
        )
        return cls(process, folder)

    @property
    def is_over(self) -> bool:
        return self._reading.done()

    async def ask(self, do: str, arguments: Mapping[str, Any]) -> Any:
        number = next(self._numbers)
        request = {"id": number, "do": do, "with": arguments}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            assert self._process.stdin is not None
            with suppress(OSError):  # the reader fails the pending answers
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
            if self.is_over:
                raise _gone("Kaggle's client has ended.")
            return await answer
        finally:
            self._waiting.pop(number, None)
            if self._retired and not self._waiting:
                await self.end()

    async def end_when_idle(self) -> None:
        self._retired = True
        if not self._waiting:
            await self.end()

    async def end(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._reading, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                reply = json.loads(line)
                answer = self._waiting.get(reply["id"])
                if answer is None or answer.done():
                    continue
                if "error" in reply:
                    answer.set_exception(_error(reply["error"]))
                else:
                    answer.set_result(reply["found"])
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_gone("Kaggle's client ended before it answered."))


def _left_out(ref: str, sources: tuple[str, ...]) -> SourcesLeftOutError:
    error = SourcesLeftOutError(
        "KAGGLE_REFUSED",
        f"Kaggle accepted the kernel {ref} without its sources {', '.join(sources)}.",
        "Check on Kaggle's page that they exist and belong to the same account.",
    )
    error.sources = sources
    return error


def _error(record: Mapping[str, Any]) -> CloudError:
    return CloudError(
        record["code"], record["message"], record["fix"], retryable=bool(record.get("retryable"))
    )


def _gone(reason: str) -> CloudError:
    return CloudError(
        "KAGGLE_UNREACHABLE",
        f"{reason} The request may have taken effect.",
        "Try again: the state at Kaggle is checked first.",
        retryable=True,
    )

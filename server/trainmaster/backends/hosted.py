"""The backend of a host with a shell and a launcher."""

from __future__ import annotations

import json
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_runtime.core.decoding import MAX_RECORD_BYTES, Fields, decode_fields
from trainer_runtime.core.processes.nodes import NODES, NodesConfig
from trainer_runtime.core.protocol.command import command, of_run
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.profile import PROFILE_REQUEST, ProfileRequest
from trainmaster.backends.capabilities import (
    AlertSender,
    FolderTester,
    InputReceiver,
    Inspector,
    Profiler,
    RunFiles,
    RunReceiver,
    SupervisorFinder,
    TextSampler,
)
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosted_images import HostedImages
from trainmaster.backends.hosted_inputs import HostedInputs
from trainmaster.backends.hosted_nodes import HostedNode
from trainmaster.backends.hosted_sources import HostedSources
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import (
    Failure,
    RuntimeCall,
    runtime_call,
    runtime_lines,
)
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress, put_tree
from trainmaster.backends.launchers import Launcher
from trainmaster.backends.multiplexed import MultiplexedFollower
from trainmaster.backends.polled import PolledFollower
from trainmaster.errors.errors import HostError

if TYPE_CHECKING:
    from trainer_runtime.core.answers.averaged import AverageAnswer, AverageRequest
    from trainer_runtime.core.answers.sampled import SampleAnswer, SampleRequest
    from trainer_runtime.core.diagnosis.stacks.report import InspectionReport
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck
    from trainer_runtime.core.files.listing import LeftOut, ListedFile
    from trainmaster.plan.facts import HostFacts

_FACTS_TIMEOUT_S = 30.0
_INSPECT_TIMEOUT_S = 35.0
_SAMPLE_ROOM_S = 8.0
_LIST_TIMEOUT_S = 300.0
_VERIFY_TIMEOUT_S = 3600.0


class HostedBackend(
    HostedImages,
    HostedInputs,
    HostedNode,
    HostedSources,
    AlertSender,
    FolderTester,
    InputReceiver,
    Inspector,
    Profiler,
    RunFiles,
    RunReceiver,
    SupervisorFinder,
    TextSampler,
):
    """`host` transports files and commands, `launcher` holds the supervisor.

    `multiplexed`: runs are followed by a process on the host rather than by asking for each file.
    `recorded`: the folder of a recorded run, even if the host's root has changed since.
    """

    # Why no model is run here outside its training, where it is not.
    runs_no_models: ClassVar[str | None] = None

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
        self._polled = PolledFollower(host, self.folder)  # holds no connection, so it is kept
        self._launcher = launcher
        self.name = host.name
        self.launcher_name = launcher.name

    async def facts(self, python: str | None) -> HostFacts:
        from trainmaster.backends.hosts.facts import examine_host

        return await examine_host(self._host, python, timeout_s=_FACTS_TIMEOUT_S)

    async def folder(self, run_id: str) -> str:
        return self._recorded(run_id) or posixpath.join(await self._host.root(), "runs", run_id)

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        await self._host.place_runtime()
        await self._host.put_folder(await self.folder(run_id), files, executable)

    async def put_run(self, run_id: str, files: Sequence[TreeFile]) -> None:
        await put_tree(self._host, files, await self.folder(run_id))

    async def request(self, run_id: str, desired: Desired) -> None:
        await self._put_json(run_id, "desired.json", desired.to_dict())

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        document = {"v": 1, "generation": generation, "values": dict(values)}
        await self._put_json(run_id, ".secrets.json", document, mode=0o600)

    async def withdraw_secrets(self, run_id: str) -> bool:
        return False

    async def deliver_alerts(self, run_id: str, config: Mapping[str, Any]) -> None:
        await self._put_json(run_id, ".alerts.json", {"v": 1, **config}, mode=0o600)

    async def start(self, run_id: str) -> bool:
        started = await self._launcher.submit(self._host, await self.folder(run_id))
        with suppress(HostError):  # else the next command that needs it sends it
            await self._host.place_runtime()
        return started

    async def supervised(self, run_ids: Sequence[str]) -> frozenset[str]:
        by_folder = {await self.folder(run_id): run_id for run_id in run_ids}
        jobs = await self._launcher.jobs(self._host, list(by_folder))
        return frozenset(by_folder[folder] for folder in jobs)

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[Follower]:
        if not self._multiplexed:
            yield self._polled
            return
        follower = MultiplexedFollower(self._host, self.folder)
        try:
            yield follower
        finally:
            await follower.close()

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
        refused = {"attempt": attempt, "message": message}
        await self._put_json(run_id, "upload_refused.json", refused)

    async def test_folder(self, path: str, *, write: bool) -> str | None:
        failure = Failure(
            f"{path} on {self.name} could not be tested",
            f"{command('hosts check', self.name)} finds the cause.",
            code="ROOT_NOT_WRITABLE",
        )
        how = ["--write"] if write else []
        call = RuntimeCall("try", [*how, "--", path], failure, _FACTS_TIMEOUT_S, acts=write)
        return await runtime_call(self._host, call, lambda answer: answer.find_text("problem"))

    async def list_files(self, run_id: str, pattern: str) -> Sequence[ListedFile | LeftOut]:
        from trainer_runtime.core.files.listing import parse_listed

        call = await self._files_call("files", run_id, pattern)
        return await runtime_lines(self._host, call, parse_listed)

    async def read_file(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        return await self._host.read(f"{await self.folder(run_id)}/{path}", offset, limit)

    async def chunk_digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        call = await self._files_call("digest", run_id, path, str(chunk), str(size_bytes))
        return await runtime_call(self._host, call, lambda answer: answer.find_text("sha256"))

    async def verify_checkpoints(self, run_id: str) -> Sequence[CheckpointCheck]:
        """By the runtime that the run has."""
        folder = await self.folder(run_id)
        failure = Failure(
            f"The checkpoints on {self.name} could not be read",
            "Run `python3 -m trainer_runtime verify .` in the run's folder by hand.",
        )
        call = RuntimeCall("verify", ["."], failure, _VERIFY_TIMEOUT_S, folder=folder)
        return await runtime_call(self._host, call, _checks)

    async def _files_call(self, verb: str, run_id: str, *arguments: str) -> RuntimeCall:
        folder = await self.folder(run_id)
        failure = Failure(
            f"The files in {folder} on {self.name} could not be listed",
            f"Check that folder; {command('doctor')} checks the host.",
        )
        return RuntimeCall(verb, ["--", folder, *arguments], failure, _LIST_TIMEOUT_S)

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> InspectionReport:
        from trainer_runtime.core.diagnosis.stacks.report import InspectionReport

        folder = await self.folder(run_id)
        failure = Failure(
            f"The processes of {run_id} on {self.name} could not be inspected",
            f"Check {folder} there; {command('doctor')} checks the host.",
        )
        options = ["--allow-py-spy"] if allow_py_spy else []
        arguments = [*options, "--", folder, str(attempt)]
        call = RuntimeCall("inspect", arguments, failure, _INSPECT_TIMEOUT_S)
        return await runtime_call(self._host, call, InspectionReport.of)

    async def request_profile(self, run_id: str, request: ProfileRequest) -> None:
        await self._put_json(run_id, PROFILE_REQUEST, request.to_dict())

    async def sample(self, run_id: str, request: SampleRequest) -> SampleAnswer:
        from trainer_runtime.core.answers.sampled import SampleAnswer

        if self.runs_no_models is not None:
            instead = of_run(TextSampler.instead, run_id)
            raise HostError("UNSUPPORTED", self.runs_no_models, instead)
        failure = Failure(
            f"The model of {run_id} writes no text on {self.name}",
            f"{command('fetch', run_id, 'latest', 'FOLDER')} brings its newest checkpoint.",
            code="NOT_SAMPLED",
            retryable=False,
        )
        call = RuntimeCall(
            "sample",
            ["--", await self.folder(run_id)],
            failure,
            request.within_s + _SAMPLE_ROOM_S,
            stdin=json.dumps(request.to_dict()).encode(),
        )
        return await runtime_call(self._host, call, SampleAnswer.of)

    async def average(
        self, run_id: str, steps: Mapping[str, Sequence[int]], request: AverageRequest
    ) -> AverageAnswer:
        from trainer_runtime.core.answers.averaged import AverageAnswer, RunSteps

        if self.runs_no_models is not None:
            instead = of_run(TextSampler.instead, run_id)
            raise HostError("UNSUPPORTED", self.runs_no_models, instead)
        failure = Failure(
            f"The checkpoints are not averaged on {self.name}",
            f"{command('checkpoints', run_id, '--verify')} shows which are whole.",
            code="NOT_AVERAGED",
            retryable=False,
        )
        runs = [RunSteps(of, await self.folder(of), tuple(its)) for of, its in steps.items()]
        call = RuntimeCall(
            "average",
            ["--", await self.folder(run_id)],
            failure,
            request.within_s + _SAMPLE_ROOM_S,
            stdin=json.dumps(replace(request, runs=tuple(runs)).to_dict()).encode(),
        )
        return await runtime_call(self._host, call, AverageAnswer.of)

    async def deliver_nodes(self, run_id: str, config: NodesConfig) -> None:
        await self._put_json(run_id, NODES, config.to_dict(), mode=0o600)

    async def end_member(self, run_id: str) -> bool:
        return await self._launcher.cancel(self._host, await self.folder(run_id))

    async def given_nodes(self, run_id: str) -> NodesConfig | None:
        text = await self._host.read(f"{await self.folder(run_id)}/{NODES}", 0, MAX_RECORD_BYTES)
        return NodesConfig.of(decode_fields(text, NODES)) if text else None

    async def _put_json(
        self, run_id: str, name: str, content: Mapping[str, Any], *, mode: int = 0o600
    ) -> None:
        path = posixpath.join(await self.folder(run_id), name)
        await self._host.put_file(path, json.dumps(content).encode(), mode=mode)


def _checks(answer: Fields) -> list[CheckpointCheck]:
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck

    return [CheckpointCheck.of(item) for item in answer.sections("checkpoints")]

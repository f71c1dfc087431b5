"""The backend of a host with a shell and a launcher."""

from __future__ import annotations

import json
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_runtime.core.decoding import MAX_RECORD_BYTES, decode_fields
from trainer_runtime.core.processes.nodes import NODES, NodesConfig
from trainer_runtime.core.processes.reaching import Peer
from trainer_runtime.core.protocol.command import command, of_run
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.backends.capabilities import (
    AlertSender,
    FolderTester,
    ImageTester,
    InputExaminer,
    InputReceiver,
    Inspector,
    NodeProber,
    OutputReader,
    RunFiles,
    RunReceiver,
    SourceExaminer,
    SupervisorFinder,
    TextSampler,
)
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosts import Host, corpus, foreign, images, reach, run_files
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress, put_tree
from trainmaster.backends.launchers import Launcher
from trainmaster.backends.multiplexed import MultiplexedFollower
from trainmaster.backends.polled import PolledFollower
from trainmaster.errors.errors import HostError

if TYPE_CHECKING:
    from trainer_runtime.core.answers.sampled import SampleAnswer, SampleRequest
    from trainer_runtime.core.diagnosis.stacks.report import InspectionReport
    from trainer_runtime.core.environment.image_problem import ImageAnswer
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck
    from trainer_runtime.core.files.corpus import AskedSource, Listing
    from trainer_runtime.core.files.foreign_output import FoundOutput
    from trainer_runtime.core.files.listing import LeftOut, ListedFile
    from trainer_runtime.core.files.model_folder import ModelFolder
    from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder
    from trainmaster.plan.facts import HostFacts

_FACTS_TIMEOUT_S = 30.0
_INSPECT_TIMEOUT_S = 35.0
_SAMPLE_ROOM_S = 8.0


class HostedBackend(
    AlertSender,
    FolderTester,
    ImageTester,
    InputExaminer,
    InputReceiver,
    Inspector,
    NodeProber,
    OutputReader,
    RunFiles,
    RunReceiver,
    SourceExaminer,
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

    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        return await corpus.list_corpus(self._host, asked)

    async def examine_model(self, path: str) -> ModelFolder:
        return await corpus.examine_model(self._host, path)

    async def examine_tokenizer(self, path: str) -> TokenizerFolder:
        return await corpus.examine_tokenizer(self._host, path)

    async def cached_from_hub(self, name: str, revision: str | None) -> str | None:
        return await corpus.cached_from_hub(self._host, name, revision)

    async def has_shards(self, fingerprint: str) -> bool:
        return await corpus.has_shards(self._host, fingerprint)

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

    async def find_image(self, name: str) -> ImageAnswer:
        return await images.find_image(self._host, name)

    async def try_image(self, config: Mapping[str, Any], lines: Sequence[str]) -> ImageAnswer:
        return await images.try_image(self._host, config, lines)

    async def list_files(self, run_id: str, pattern: str) -> Sequence[ListedFile | LeftOut]:
        return await run_files.list_files(self._host, await self.folder(run_id), pattern)

    async def read_file(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        return await self._host.read(f"{await self.folder(run_id)}/{path}", offset, limit)

    async def chunk_digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        folder = await self.folder(run_id)
        return await run_files.chunk_digest(self._host, folder, path, chunk, size_bytes)

    async def verify_checkpoints(self, run_id: str) -> Sequence[CheckpointCheck]:
        return await run_files.verify_checkpoints(self._host, await self.folder(run_id))

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

    async def clock(self) -> float:
        return await reach.clock(self._host)

    async def addresses(self) -> Sequence[str]:
        return await reach.addresses(self._host)

    async def listen(
        self, port: int, nonce: str, nodes: Sequence[str], within_s: float
    ) -> str | None:
        asked = {"port": port, "nonce": nonce, "nodes": list(nodes), "within_s": within_s}
        return await reach.listen(self._host, asked)

    async def connect(
        self, node: str, addresses: Sequence[str], port: int, nonce: str, within_s: float
    ) -> Mapping[str, object]:
        asked = {"port": port, "nonce": nonce, "node": node, "within_s": within_s}
        return await reach.connect(self._host, {**asked, "addresses": list(addresses)})

    async def reach_others(
        self, own: Peer, others: Sequence[Peer], nonce: str, within_s: float
    ) -> Mapping[str, str] | str:
        peers = [peer.to_dict() for peer in others]
        asked = {"own": own.to_dict(), "others": peers, "nonce": nonce, "within_s": within_s}
        return await reach.reach_others(self._host, asked)

    async def deliver_nodes(self, run_id: str, config: NodesConfig) -> None:
        await self._put_json(run_id, NODES, config.to_dict(), mode=0o600)

    async def end_member(self, run_id: str) -> bool:
        return await self._launcher.cancel(self._host, await self.folder(run_id))

    async def given_nodes(self, run_id: str) -> NodesConfig | None:
        text = await self._host.read(f"{await self.folder(run_id)}/{NODES}", 0, MAX_RECORD_BYTES)
        return NodesConfig.of(decode_fields(text, NODES)) if text else None

    async def examine_source(
        self, kind: str, target: str, begin: str, pattern: str | None = None
    ) -> Mapping[str, Any]:
        return await foreign.examine_source(self._host, kind, target, begin, pattern)

    async def read_output(self, python: str | None, folder: str) -> FoundOutput:
        return await foreign.read_output(self._host, python, folder)

    async def _put_json(
        self, run_id: str, name: str, content: Mapping[str, Any], *, mode: int = 0o600
    ) -> None:
        path = posixpath.join(await self.folder(run_id), name)
        await self._host.put_file(path, json.dumps(content).encode(), mode=mode)

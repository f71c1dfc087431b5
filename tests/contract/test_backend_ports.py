"""The minimal port on every backend, and each capability on those that have it.

Kaggle is `kaggle_fake.FakeKaggle`; `test_backends.py` runs whole trainings on the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.kept_runtimes import kept_runtimes
from support.backends.ssh_hosts import Sshd
from support.kaggle.stage import RUN, Stage
from support.runs.running_run import run_async
from support.session.tiers import at_length

from trainer_runtime.core.files.corpus import AskedSource
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.files.listing import LeftOut, ListedFile
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.backends import (
    AlertSender,
    Backend,
    Capability,
    FolderTester,
    ImageTester,
    InputExaminer,
    InputReceiver,
    Inspector,
    NodeProber,
    OutputReader,
    Profiler,
    RunFiles,
    RunReceiver,
    SourceExaminer,
    SupervisorFinder,
    TextSampler,
)
from trainmaster.backends.hosts.tree_files import list_tree
from trainmaster.backends.hosts.trees import TreeProgress
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.sync.workspace import Workspace

HOSTS = ("local", "debug", "gpu1")
ALL = (*HOSTS, "kaggle")
# Whatever is asked goes the same way over SSH, which the tests of `ALL` take.
_BRIEFLY = ("local", "debug", *at_length("gpu1"))
CAPABILITIES = {
    "kaggle": {InputReceiver, RunFiles},
    **{
        host: {
            AlertSender,
            FolderTester,
            ImageTester,
            InputExaminer,
            InputReceiver,
            Inspector,
            NodeProber,
            OutputReader,
            Profiler,
            RunFiles,
            RunReceiver,
            SourceExaminer,
            SupervisorFinder,
            TextSampler,
        }
        for host in HOSTS
    },
}
FILES = {"config.json": b'{"secrets": []}', "final/model.bin": b"weights"}
OTHER = "never-placed-abc234"
STOPPED = Desired(DesiredState.STOPPED, generation=2, why="stop")


@pytest.fixture
def backend(workspace: Workspace, host: str) -> Iterator[Backend]:
    if host == "kaggle":
        yield Stage(workspace).backend
    elif host == "gpu1":
        with Sshd() as sshd:
            workspace.control.put_host(sshd.record("gpu1"), t=1.0)
            yield workspace.backend("gpu1")
    else:
        yield workspace.backend(host)


@pytest.fixture
def placed(workspace: Workspace, host: str) -> Iterator[Backend]:
    """A backend whose run has the `FILES` and, as every run, its own runtime; at Kaggle, in the
    output of its first session."""
    if host == "kaggle":
        stage = Stage(workspace).place()
        session = stage.session()
        stage.emit(session, stage.begun() + stage.over())
        session.files |= FILES
        stage.complete(session, step=None)
        yield stage.backend
    elif host == "gpu1":
        with Sshd() as sshd:
            kept_runtimes.lend(sshd.home / "trainmaster")
            workspace.control.put_host(sshd.record("gpu1"), t=1.0)
            yield _with_run(workspace.backend("gpu1"))
    else:
        yield _with_run(workspace.backend(host))


def _with_run(backend: Backend) -> Backend:
    asyncio.run(backend.place(RUN, {**FILES, **_own_runtime()}, frozenset()))
    return backend


@pytest.mark.parametrize("host", ALL)
def test_a_run_is_placed_once_and_removed_once(backend: Backend, host: str) -> None:
    async def work() -> None:
        assert backend.name == host
        assert (await backend.folder(RUN)).startswith("/")
        assert await backend.contents(RUN) == []
        await backend.place(RUN, FILES, frozenset())
        await backend.place(RUN, {"config.json": b"another"}, frozenset())
        for _ in range(2):
            await backend.request(RUN, STOPPED)
            await backend.deliver_secrets(RUN, 2, {"HF_TOKEN": "a-value-of-it"})
        assert await backend.remove(RUN, ["."]) > 0
        assert await backend.contents(RUN) == []
        assert await backend.remove(RUN, ["."]) == 0
        await backend.disconnect()
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", ALL)
def test_a_place_has_facts_and_can_be_followed(backend: Backend, host: str) -> None:
    async def work() -> None:
        facts = await backend.facts(None)
        assert facts.memory_total_gib > 0.0
        assert facts.cache is not None and facts.cache.startswith("/")
        async with backend.follower() as follower:
            assert (await follower.copy_new({})).changed == {}
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", ALL)
def test_a_capability_that_a_backend_lacks_is_refused_with_what_to_do_instead(
    backend: Backend, host: str
) -> None:
    for capability in Capability.__subclasses__():
        if capability in CAPABILITIES[host]:
            assert capability.of(backend) is backend
            continue
        assert capability.find(backend) is None
        with pytest.raises(HostError) as refused:
            capability.of(backend, field="host")
        error = refused.value
        assert (error.code, error.field, error.retryable) == ("UNSUPPORTED", "host", False)
        assert error.message == f"{host} can't {capability.cannot}."
        assert error.fix == capability.instead


@pytest.mark.parametrize("host", (*_BRIEFLY, "kaggle"))
def test_files_are_received_into_the_cache(backend: Backend, host: str) -> None:
    async def work() -> None:
        receiver = InputReceiver.of(backend)
        cache = (await backend.facts(None)).cache
        seen: list[TreeProgress] = []
        files = list_tree({"a.txt": b"some text"}, frozenset())
        for _ in range(2):
            destination = f"{cache}/sources/0123456789abcdef"
            await receiver.send(files, destination, mark=True, on_progress=seen.append)
        assert seen[-1].done_bytes == seen[-1].total_bytes == len(b"some text")
        assert not await receiver.has_shards("fedcba9876543210")
        await backend.place(RUN, FILES, frozenset())
        await backend.request(RUN, STOPPED)
        await receiver.refuse_upload(RUN, 1, "The files of a.txt changed since the plan.")
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", ALL)
def test_files_of_a_run_are_listed_and_read(placed: Backend, host: str) -> None:
    async def work() -> None:
        files = RunFiles.of(placed)
        (listed,) = await files.list_files(RUN, "final")
        assert isinstance(listed, ListedFile)
        digest = hashlib.sha256(b"weights").hexdigest()
        assert (listed.path, listed.size_bytes, listed.sha256) == ("final/model.bin", 7, (digest,))
        assert await files.read_file(RUN, "final/model.bin", 2, 3) == b"igh"
        assert await files.read_file(RUN, "final/none", 0, 3) == b""
        assert await files.chunk_digest(RUN, "final/model.bin", 0, 7) == digest
        assert await files.chunk_digest(RUN, "final/model.bin", 0, 8) is None
        assert await files.verify_checkpoints(RUN) == []
        await placed.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_a_damaged_checkpoint_is_found(backend: Backend, host: str) -> None:
    async def work() -> None:
        name = "checkpoints/step-00000020/model.safetensors"
        await backend.place(RUN, {**FILES, **_own_runtime(), name: b"no manifest"}, frozenset())
        (check,) = await RunFiles.of(backend).verify_checkpoints(RUN)
        assert (check.step, check.path) == (20, "checkpoints/step-00000020")
        assert check.problems
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_a_run_that_began_elsewhere_is_taken_over(backend: Backend, host: str) -> None:
    async def work() -> None:
        files = list_tree({**FILES, "supervisor.jsonl": b"{}\n"}, frozenset())
        for _ in range(2):
            await RunReceiver.of(backend).put_run(RUN, files)
        listed = await RunFiles.of(backend).list_files(RUN, "**")
        assert {item.path for item in listed} == {*FILES, "supervisor.jsonl"}
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_alerts_lie_in_a_file_that_is_never_given_out(placed: Backend, host: str) -> None:
    async def work() -> None:
        await AlertSender.of(placed).deliver_alerts(RUN, {"generation": 1, "alerts": []})
        assert ".alerts.json" in await placed.contents(RUN)
        (left_out,) = await RunFiles.of(placed).list_files(RUN, ".alerts.json")
        assert isinstance(left_out, LeftOut)
        await placed.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_a_folder_that_can_not_be_written_is_found(
    backend: Backend, host: str, tmp_path: Path
) -> None:
    async def work() -> None:
        tester = FolderTester.of(backend)
        assert await tester.test_folder(f"{tmp_path}/mirror", write=True) is None
        assert not (tmp_path / "mirror").exists()
        assert "can't be written" in str(await tester.test_folder("/proc/mirror", write=True))
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_inputs_of_the_place_are_examined(backend: Backend, host: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")

    async def work() -> None:
        examiner = InputExaminer.of(backend)
        asked = [AskedSource(str(tmp_path / "a.txt"))]
        (listing,) = await examiner.list_corpus(asked)
        assert [file.size_bytes for file in listing.files] == [len("some text")]
        assert (await examiner.examine_model(str(tmp_path))).problem is not None
        assert (await examiner.examine_tokenizer(str(tmp_path))).problem is not None
        assert await examiner.cached_from_hub("no-owner/no-model", None) is None
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_a_run_without_processes_is_inspected(placed: Backend, host: str) -> None:
    async def work() -> None:
        report = await Inspector.of(placed).inspect(RUN, 1)
        assert (report.attempt, report.ranks, report.verdict.code) == (1, (), "stall")
        await placed.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_runs_with_a_supervisor_are_found_among_others(placed: Backend, host: str) -> None:
    async def work() -> None:
        finder = SupervisorFinder.of(placed)
        asked = [OTHER, RUN]
        assert await finder.supervised(asked) == frozenset()
        lock = try_lock(RunFolder(Path(await placed.folder(RUN))).supervisor_lock)
        assert lock is not None
        try:
            assert await finder.supervised(asked) == {RUN}
        finally:
            os.close(lock)
        await placed.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", _BRIEFLY)
def test_a_log_is_found_and_a_missing_one_refused(
    backend: Backend, host: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 4.2\n")

    async def work() -> None:
        examiner = SourceExaminer.of(backend)
        source = await examiner.examine_source("log", str(log), "start")
        assert (source["kind"], source["path"]) == ("log", str(log))
        with pytest.raises(HostError) as refused:
            await examiner.examine_source("log", str(tmp_path / "none.log"), "start")
        assert refused.value.code == "LOG_NOT_READABLE"
        with pytest.raises(HostError) as unmatched:
            await examiner.examine_source("log", str(log), "start", "it {step} L={loss}")
        assert unmatched.value.code == "PATTERN_MATCHES_NOTHING"
        await backend.disconnect()

    run_async(work)


@pytest.mark.parametrize("host", ["local", *at_length("debug", "gpu1")])
def test_an_output_folder_that_is_not_known_is_refused(
    backend: Backend, host: str, tmp_path: Path
) -> None:
    async def work() -> None:
        reader = OutputReader.of(backend)
        with pytest.raises(HostError) as refused:
            await reader.read_output(sys.executable, str(tmp_path))
        assert refused.value.code == "OUTPUT_UNKNOWN"
        with pytest.raises(HostError) as unusable:
            await reader.read_output("/bin/false", str(tmp_path))
        assert unusable.value.code == "HOST_CALL_FAILED"
        await backend.disconnect()

    run_async(work)


def _own_runtime() -> dict[str, bytes]:
    """The runtime that a launched run carries."""
    package = find_assets().runtime
    return {
        f"trainer_runtime/{path.relative_to(package)}": path.read_bytes()
        for path in package.rglob("*.py")
    }

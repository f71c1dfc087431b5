"""One suite for every launcher: jobs are submitted, found, signalled and cancelled alike. Slurm's
are those of a real cluster; those of the process launcher are also containers of a real Podman."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.host.container_images import BARE, Podman
from support.host.scripted_processes import CONFIG
from support.runs.running_run import LONGEST_S, begin_with, own_run_id, run_async, wait_until
from support.session.tiers import by_engines

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import carriers
from trainmaster.backends.debug import InProcessLauncher
from trainmaster.backends.debug.trainer import thread_name
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers import JobState, Launcher
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.backends.launchers.slurm import SlurmLauncher
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.plan.job_script import job_files

RUN = own_run_id("job")
ABSENT, RUNNING = JobState.ABSENT, JobState.RUNNING
JOB = {"partition": "cpu", "limit_minutes": 10, "cpus": 1, "memory_mib": 500, "margin_s": 60}
# A preparation that does not end; a trainer, and a simulated one, whose steps do not.
SETUP = "exec sleep 3600\n"
TRAINER = "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(3600)\n"
VARIABLES = {"TRAINMASTER_STEP_S": "3600"}
_COMPILED = shutil.ignore_patterns("__pycache__")
LAUNCHERS = {"process": ProcessLauncher, "in-process": InProcessLauncher, "slurm": SlurmLauncher}


def _data(folder: Path) -> dict[str, Any]:
    """The configuration of data that would be prepared, after the setup script."""
    corpus = folder.with_name("corpus")
    corpus.mkdir()
    (corpus / "a.txt").write_text("some text")
    source = Source("main", str(corpus), list_files(corpus))
    return {
        "sources": [{"name": "main", "path": str(corpus), "format": "text"}],
        "tokenizer": "byte",
        "seq_len": 16,
        "fingerprint": fingerprint([source], "byte", 16),
        "cache_dir": str(folder.with_name("cache")),
        "skip": [],
    }


class Submitted:
    """A run's folder on a host, and the launcher that holds its supervisor."""

    def __init__(self, launcher: Launcher, host: LocalHost, folder: Path, **changes: Any) -> None:
        self.launcher, self.host, self.run = launcher, host, RunFolder(folder)
        self.folder, self.other = str(folder), str(folder.with_name("never-placed-abc234"))
        folder.mkdir(parents=True)
        config = {**CONFIG, "run_id": folder.name, "env": VARIABLES, "data": _data(folder)}
        config["slurm"] = JOB
        config["environment"] = {"mode": "existing", "modules": [], "bound": {}, "setup": True}
        # A link would lead out of what a container sees.
        shutil.copytree(find_assets().runtime, folder / "trainer_runtime", ignore=_COMPILED)
        config["compute"] = {"device": "cpu", "processes": 1}
        self._write("config.json", {**config, **changes})
        self._write("desired.json", {"v": 1, "state": "running", "generation": 1})
        (folder / "setup.sh").write_text(SETUP)
        for name, text in job_files(config, folder.name, find_assets()).items():
            (folder / name).write_bytes(text)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        (self.run.root / name).write_text(json.dumps(document))

    @property
    def left(self) -> list[object]:
        """What the first attempt keeps running."""
        threads = [one for one in threading.enumerate() if one.name == thread_name(RUN, 1)]
        return [*threads, *carriers(marker(RUN, 1))]

    @property
    def has_begun(self) -> bool:
        """Whether the first attempt runs what it was submitted for."""
        return bool(self.left)

    async def submit(self) -> bool:
        return await self.launcher.submit(self.host, self.folder)

    async def cancel(self) -> bool:
        return await self.launcher.cancel(self.host, self.folder)

    def end(self) -> None:
        asyncio.run(self.cancel())

    async def state(self) -> JobState:
        return (await self.launcher.state(self.host, self.folder)).state

    async def until(self, wanted: JobState) -> None:
        """Wait for a state, which jobs that queue come to in their time."""
        async with asyncio.timeout(LONGEST_S):
            while (state := await self.state()) is not wanted:
                assert self.launcher.abilities.queues or wanted is ABSENT, state
                await asyncio.sleep(0.05)


class Contained(Submitted):
    """The same, whose trainer runs in a container, without PyTorch."""

    def __init__(self, podman: Podman, host: LocalHost, folder: Path, **changes: Any) -> None:
        compute = {"device": "cpu", "launcher": "docker", "image": BARE, "shm_size": "64m"}
        script = {"folder": str(folder), "command": ["train.py"]}
        given = {"framework": "script", "script": script, "environment": None, "compute": compute}
        super().__init__(ProcessLauncher(), host, folder, **given, **changes)
        (folder / "train.py").write_text(TRAINER)
        self._podman = podman

    @property
    def left(self) -> list[object]:
        return [*super().left, *self._podman.containers()]

    @property
    def has_begun(self) -> bool:
        return (self.run.root / "begun").exists()

    def end(self) -> None:
        super().end()
        self._podman("rm", "--force", "--all", "--time", "0")


class Tried(Contained):
    """The same, whose image is tried in a container without an end."""

    def __init__(self, podman: Podman, host: LocalHost, folder: Path) -> None:
        standing = begin_with(podman.planted / "standing", "import time; time.sleep(3600)")
        super().__init__(podman, host, folder, env=yaml.safe_load(standing))

    @property
    def has_begun(self) -> bool:
        return bool(self._podman.containers() and carriers(marker(RUN, 1)))


CONTAINED = {"container": Contained, "container of the preparation": Tried}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


def _submitted(
    place: str, request: pytest.FixtureRequest, host: LocalHost, folder: Path
) -> Submitted:
    if place in CONTAINED:
        return CONTAINED[place](request.getfixturevalue("podman"), host, folder)
    return Submitted(LAUNCHERS[place](), host, folder)


@pytest.fixture(params=["process", "in-process", *by_engines("slurm", *CONTAINED)])
def job(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submitted]:
    host = LocalHost("box", tmp_path)
    if request.param == "slurm":
        for name, value in request.getfixturevalue("cluster").environment.items():
            monkeypatch.setenv(name, value)
    made = _submitted(request.param, request, host, tmp_path / "runs" / RUN)
    yield made
    made.end()


def test_a_job_is_submitted_once_found_among_others_and_cancelled_with_all_it_runs(
    job: Submitted,
) -> None:
    async def work() -> None:
        assert await job.state() == ABSENT
        assert await job.cancel() is False
        assert [await job.submit() for _ in range(3)] == [True, False, False]
        await job.until(RUNNING)
        found = await job.launcher.jobs(job.host, [job.other, job.folder])
        assert {folder: one.state for folder, one in found.items()} == {job.folder: RUNNING}
        wait_until(lambda: job.has_begun, "the attempt's own process")
        assert await job.cancel() is True
        assert await job.state() == ABSENT
        wait_until(lambda: not job.left, "the end of all that it ran")
        # Nobody was asked to end, or lived to see how it ended: nothing was saved.
        assert b"attempt_signalled" not in (ended := job.run.journal.read_bytes())
        assert b"attempt_ended" not in ended
        assert await job.submit() is True
        await job.until(RUNNING)

    run_async(work)


def test_a_signal_reaches_the_supervisor_where_jobs_take_signals(job: Submitted) -> None:
    async def work() -> None:
        if not job.launcher.abilities.signals:
            with pytest.raises(HostError) as refused:
                await job.launcher.signal(job.host, job.folder, signal.SIGKILL)
            assert refused.value.code == "UNSUPPORTED"
            return
        assert await job.launcher.signal(job.host, job.folder, signal.SIGKILL) is False
        await job.submit()
        await job.until(RUNNING)
        wait_until(lambda: job.has_begun, "the attempt's own process")
        assert Path(job.launcher.log_path(job.folder)).exists()
        assert await job.launcher.signal(job.host, job.folder, signal.SIGKILL) is True
        await job.until(ABSENT)
        if not job.launcher.abilities.queues:  # a scheduler ends what its job leaves
            assert await job.cancel() is True
            wait_until(lambda: not job.left, "the end of what the supervisor left")

    run_async(work)


@pytest.mark.engine
def test_sbatch_takes_exported_scripts(cluster: SlurmCluster) -> None:
    folder = Path(__file__).parents[1] / "golden" / "export"
    smaller = ("--cpus-per-task=1", "--mem=10M", "--time=1")
    for name, gpus in (("job.sbatch", "gpu:1"), ("two-nodes.sbatch", "none")):
        cluster.run("sbatch", "--test-only", *smaller, f"--gres={gpus}", str(folder / name))

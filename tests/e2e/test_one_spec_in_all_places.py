"""One spec in every place that is driven: the same commands, answers and losses, bit for bit.

With one process always; with two where `TRAINMASTER_FAULT_ROUNDS` is two or more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import slurm_cluster
from support.backends.ssh_hosts import Network, Sshd
from support.host.container_images import TORCH, Podman
from support.runs.running_run import LONGEST_S, CommandLine, small_spec

pytestmark = [pytest.mark.slow, pytest.mark.engine]
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "0"))
# Of an answer about a run: what a place may not change.
_SAME = ("state", "reason", "attempt", "step", "target_step", "findings", "checkpoint")
_KEYS = ("loss", "val_loss", "lr", "grad_norm")


class Places:
    """A home that knows a host over SSH and a cluster."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self.command = folder, CommandLine(folder / "home")
        self._opened = opened
        cluster = opened.enter_context(slurm_cluster())
        login = opened.enter_context(Sshd(environment=cluster.environment))
        self._add("cluster", login, "--launcher", "slurm")
        self._add("box", opened.enter_context(Sshd()))

    def add_two_hosts(self) -> None:
        """Hosts that train together."""
        network = self._opened.enter_context(Network())
        for name in ("gpu1", "gpu2"):
            space = network.add(name)
            host = Sshd(netns=space, address=network.address(name), pid_namespace=True)
            self._add(name, self._opened.enter_context(host))

    def _add(self, name: str, host: Sshd, *options: str) -> None:
        record = host.record(name)
        address = f"{record.user}@{record.address}:{record.port}"
        how = ("--key", str(record.key), "--root", record.root)
        self.command("hosts", "add", name, address, *how, *options)

    def launched(self, name: str, **changes: str) -> str:
        given = {
            "name": "everywhere",
            "precision": "fp32",
            "environment": f"{{python: {sys.executable}}}",
            "compute": "{gpus: 0, threads: 1}",
            **changes,
        }
        spec = self.folder / name / "spec.yaml"
        spec.parent.mkdir()
        kept = {key: value for key, value in given.items() if value}
        spec.write_text(small_spec(spec.parent, **kept))
        return str(self.command("launch", str(spec))["run_id"])

    def answers(self, run: str) -> dict[str, Any]:
        """What the commands say of a run that has completed."""
        ended = self.command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
        status = self.command("status", run)
        assert status["state"] == "completed", (status["reason"], status.get("evidence"))
        keys = [word for key in _KEYS for word in ("--key", key)]
        metrics = self.command("metrics", run, *keys, "--all")["runs"][run]
        diagnosis = self.command("diagnose", run)
        checkpoints = self.command("checkpoints", run)["checkpoints"]
        return {
            "wait": (ended["event"], ended["step"]),
            "status": {key: _without_times(status.get(key)) for key in _SAME},
            "metrics": {key: (one["steps"], one["values"]) for key, one in metrics.items()},
            "diagnose": [finding["code"] for finding in diagnosis["findings"]],
            "checkpoints": [(one["step"], one["verified"]) for one in checkpoints],
        }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with ExitStack() as opened:
        yield Places(tmp_path_factory.mktemp("places"), opened)


def test_one_process_trains_the_same_here_over_ssh_in_a_container_and_at_slurm(
    places: Places, podman: Podman
) -> None:
    places.command.environment.update(podman.environment)
    boxed = f"{{gpus: 0, threads: 1, launcher: docker, image: {TORCH!r}, shm_size: 1g}}"
    runs = {
        "local": places.launched("local", host="local"),
        "ssh": places.launched("ssh", host="box"),
        "slurm": places.launched("slurm", host="cluster"),
        "docker": places.launched("docker", host="local", environment="", compute=boxed),
    }
    expect_the_same(runs, places.answers)
    podman("rm", "--force", "--all", "--time", "0")


@pytest.mark.skipif(ROUNDS < 2, reason="six processes at once: TRAINMASTER_FAULT_ROUNDS >= 2")
def test_two_processes_train_the_same_on_one_host_on_two_and_in_a_job_of_two_nodes(
    places: Places,
) -> None:
    places.add_two_hosts()
    two = "{gpus: 0, threads: 1, processes: 2}"
    runs = {
        "one host": places.launched("one", host="box", framework="hf", compute=two),
        "two hosts": places.launched("two", host="[gpu1, gpu2]", framework="hf"),
        "two nodes of a job": places.launched(
            "nodes", host="cluster", framework="hf", compute="{gpus: 0, threads: 1, nodes: 2}"
        ),
    }
    expect_the_same(runs, places.answers)


def expect_the_same(runs: Mapping[str, str], answers: Callable[[str], dict[str, Any]]) -> None:
    found = {place: answers(run) for place, run in runs.items()}
    first, *others = found
    losses = found[first]["metrics"]["loss"][1]
    assert len(losses) == 60 and losses[-1] < losses[0]
    for place in others:
        assert found[place] == found[first], place


def _without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: one for key, one in value.items() if key not in ("age_s", "mirrored_step")}

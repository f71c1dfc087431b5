"""A run on several hosts of which one is gone: secrets, logs and cleaning do without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.core.journal_records import attempt_starting, lines, state
from support.runs.running_run import run_async
from support.sync.followed_run import FakeRun, end_run

from trainer_runtime.core.policy.patch import apply_sets
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import Backend
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.errors.errors import HostError, StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.runs.clean import clean
from trainmaster.runs.log.rank_log import read_rank_log
from trainmaster.runs.resume.remaining_hosts import host_changes, on_remaining_hosts
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.status.node_states import members_of
from trainmaster.runs.upkeep.further_hosts import start_members
from trainmaster.runs.upkeep.secret_delivery import deliver_secrets
from trainmaster.store import secret_values
from trainmaster.store.host_record import HostRecord
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

NAMES = ("gpu1", "gpu2", "gpu3")
RUN = "several-abc234"
AGAIN = Desired(DesiredState.RUNNING, 2, why="resume")


class Hosts(Workspace):
    """Three hosts, each a folder of this machine; one of those in `away` refuses connections."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.away = set[str]()
        self._here = {}
        for name in NAMES:
            record = HostRecord(name, "127.0.0.1", port=free_port("127.0.0.1"))
            self.control.put_host(record, 1.0)
            local = LocalHost(name, home.root / name)
            self._here[name] = HostedBackend(local, ProcessLauncher(), multiplexed=True)

    def backend(self, host: str) -> Backend:
        return super().backend(host) if host in self.away else self._here[host]

    def run(self, optimizer: str = "adamw", **compute: Any) -> FakeRun:
        hosts = [{"name": name, "address": "127.0.0.1", "cache": f"/{name}"} for name in NAMES]
        shape = {"device": "cpu", "processes": 3, "nodes": 3, "strategy": "ddp", **compute}
        shape = {"min_nodes": None, "taking_part": [0, 1, 2], **shape}
        batch = {"tokens": 96, "micro_batch": 4, "accumulation": 1}
        config = {"compute": shape, "nodes": {"port": 1, "hosts": hosts}, "batch": batch}
        config |= {"derived": {"sequences_per_step": 12}, "optimizer": {"name": optimizer}}
        config["data"] = {"cache_dir": "/gpu1", "sources": []}
        for name in NAMES:
            self.folder(name).mkdir(parents=True)
        return FakeRun(self, self.folder("gpu1"), "gpu1", **config, secrets=["HF_TOKEN"])

    def folder(self, host: str) -> Path:
        return self.home.root / host / "runs" / RUN

    def secret(self, host: str) -> str | None:
        path = self.folder(host) / ".secrets.json"
        return json.loads(path.read_text())["values"]["HF_TOKEN"] if path.exists() else None


@pytest.fixture
def hosts(home: Path) -> Iterator[Hosts]:
    made = Hosts(Home(home))
    secret_values.keep(made.home, RUN, {"HF_TOKEN": "hf_4815162342"})
    yield made
    made.close()


def test_a_run_that_may_do_without_a_host_is_given_its_secrets_without_it(hosts: Hosts) -> None:
    run = hosts.run(min_nodes=1)
    hosts.away = {"gpu2"}
    run_async(lambda: deliver_secrets(hosts, hosts.control.run(RUN), AGAIN))
    assert [hosts.secret(name) is None for name in NAMES] == [False, True, False]
    hosts.away = set()
    run.write("supervisor.jsonl", b"".join(lines([attempt_starting(1), state("running")])))
    run_async(lambda: start_members(hosts, load_view(hosts, RUN), thorough=True))
    assert [hosts.secret(name) is None for name in NAMES] == [False] * 3


def test_a_run_that_needs_a_host_waits_for_it_with_its_secrets(hosts: Hosts) -> None:
    hosts.run()
    hosts.away = {"gpu2"}
    with pytest.raises(HostError) as refused:
        run_async(lambda: deliver_secrets(hosts, hosts.control.run(RUN), AGAIN))
    assert refused.value.unreachable


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_run_is_cleaned_without_a_host_that_is_gone_and_there_once_it_is_back(
    hosts: Hosts, *, is_removed: bool
) -> None:
    end_run(hosts.run())
    hosts.away = {"gpu2"}
    record = hosts.control.host("gpu2")
    if is_removed:
        hosts.control.remove_host("gpu2")
    cleaned = run_async(lambda: clean(hosts, RUN, force=True))
    assert cleaned.note is not None and f"Files of {RUN} are left on gpu2" in cleaned.note
    assert hosts.control.run(RUN).cleaned
    assert [hosts.folder(name).exists() for name in NAMES] == [False, True, False]
    assert record is not None
    hosts.control.put_host(record, 1.0)
    hosts.away = set()
    assert run_async(lambda: clean(hosts, RUN, force=True)).note is None
    assert not hosts.folder("gpu2").exists()


def continued(hosts: Hosts, on: str) -> tuple[Run, dict[str, Any]]:
    """The run on its remaining hosts, and what that changes in its last attempt's configuration."""
    spec = {"host": "gpu1", "other_hosts": ["gpu2", "gpu3"], "compute": {"min_nodes": 2}}
    run = replace(hosts.control.run(RUN), spec=json.dumps(spec))
    there = run_async(lambda: on_remaining_hosts(hosts, run, on, run.document))
    changed = host_changes(there, run.document)
    assert apply_sets(run.document, changed) == there.document
    return there, changed


def test_a_run_whose_first_host_is_gone_continues_on_the_others_with_its_batch(
    hosts: Hosts,
) -> None:
    hosts.run(min_nodes=2)
    there, changed = continued(hosts, "gpu3")
    assert changed["nodes"]["hosts"] == [
        {"name": "gpu3", "address": "127.0.0.1", "cache": "/gpu3"},
        {"name": "gpu2", "address": "127.0.0.1", "cache": "/gpu2"},
    ]
    assert (there.host, members_of(there)) == ("gpu3", ["gpu2"])
    compute, batch = there.config.compute, there.config.batch
    assert (compute.processes, compute.taking_part, compute.min_nodes) == (2, (0, 1), 2)
    assert (batch.micro_batch, batch.accumulation) == (3, 2)  # 12 sequences, as on three
    assert there.config.data.cache_dir == "/gpu3"
    assert json.loads(there.spec)["other_hosts"] == ["gpu2"]
    assert [hosts.folder(name).exists() for name in NAMES] == [True, False, False]


@pytest.mark.parametrize(("strategy", "alone"), [("ddp", "single"), ("zero3", "zero3")])
def test_a_run_of_which_one_host_is_left_continues_there_alone(
    hosts: Hosts, strategy: str, alone: str
) -> None:
    hosts.run(min_nodes=1, strategy=strategy)
    hosts.away = {"gpu3"}
    there, changed = continued(hosts, "gpu2")
    assert changed["nodes"] is None and members_of(there) == []
    compute, batch = there.config.compute, there.config.batch
    assert (compute.strategy, compute.nodes, compute.min_nodes) == (alone, 1, None)
    assert (batch.micro_batch, batch.accumulation) == (4, 3)
    assert host_changes(there, there.document) == {}


@pytest.mark.parametrize(
    ("run", "host", "fix"),
    [
        (
            {"strategy": "zero3", "optimizer": "sgd"},
            "gpu2",
            "Resume it where it is, or launch it again.",
        ),
        ({}, "gpu4", "Name one of its further hosts, gpu2 or gpu3, or launch it again."),
    ],
)
def test_a_run_of_several_hosts_does_not_continue_anywhere_else(
    hosts: Hosts, run: dict[str, str], host: str, fix: str
) -> None:
    end_run(hosts.run(**run))
    with pytest.raises(StateError, match=f"can't continue on {host}") as refused:
        run_async(lambda: resume(hosts, RUN, host=host))
    assert (refused.value.code, refused.value.fix) == ("UNSUPPORTED", fix)


def test_a_ranks_log_is_read_where_its_attempt_had_it(hosts: Hosts) -> None:
    run = hosts.run(min_nodes=1)
    for name in NAMES:
        folder = hosts.folder(name) / "attempts/1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.log").write_text(f"as {name} has it\n")
    fewer = {"processes": 2, "nodes": 2, "taking_part": [0, 2], "min_nodes": 1}
    document = hosts.control.run(RUN).document
    changed = {**document, "compute": {**document["compute"], **fewer}}
    run.write("attempts/1/config.json", json.dumps(changed).encode())
    run.write("supervisor.jsonl", b"".join(lines([attempt_starting(1), state("running")])))
    hosts.away = {"gpu2"}

    def lines_of(rank: int) -> list[str]:
        return run_async(lambda: read_rank_log(hosts, RUN, rank)).lines

    assert [lines_of(rank) for rank in (0, 1)] == [["as gpu1 has it"], ["as gpu3 has it"]]
    with pytest.raises(UsageError, match="has no rank 2 in its newest attempt"):
        lines_of(2)

"""Several hosts that can't train together are refused before anything is placed or started."""

from __future__ import annotations

import subprocess

import pytest
from support.runs.running_run import run_async
from support.runs.two_hosts import NAMES, PROGRAM, TwoHosts

from trainmaster.errors.errors import HostError
from trainmaster.plan.facts import HostFacts, TorchFacts
from trainmaster.runs.planning.probe_nodes import probe_nodes
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow


def test_hosts_that_cannot_reach_one_another_are_refused(two: TwoHosts) -> None:
    first = two.network.address("gpu1")
    route = ["ip", "-n", two.network.namespace("gpu2"), "route"]
    subprocess.run([*route, "add", "prohibit", f"{first}/32"], check=True)
    try:
        error = _probing_error(two, [_facts("gpu1"), _facts("gpu2")])
    finally:
        subprocess.run([*route, "del", "prohibit", f"{first}/32"], check=True)
    assert error.code == "NODES_UNREACHABLE"
    assert "gpu2 can't connect to gpu1 on port" in error.message and first in error.message


def test_a_firewall_that_bars_the_ports_of_ranks_is_named(two: TwoHosts) -> None:
    """It opens those on which our own connections are made."""
    with two.network.firewall("gpu1", "gpu2", "1:19999", "32000:65535"):
        error = _probing_error(two, [_facts("gpu1"), _facts("gpu2")])
    assert error.code == "NODES_UNREACHABLE"
    where = f"gpu2 can't connect to gpu1 ({two.network.address('gpu1')}, port "
    assert error.message.startswith(where) and error.message.endswith(": no answer).")


@pytest.mark.long
def test_hosts_of_which_two_are_parted_are_refused_before_anything_is_placed(
    three: TwoHosts,
) -> None:
    (three.folder / "parted").mkdir()
    (three.folder / "parted/train.py").write_text(PROGRAM)
    spec = three.folder / "parted.yaml"
    spec.write_text(
        f"name: parted\nframework: script\nhost: [gpu1, gpu2, gpu3]\nsteps: 60\nscript:\n"
        f"  path: {three.folder / 'parted'}\n  command: [python3, train.py, '{{nodes}}']\n"
    )
    with three.network.firewall("gpu3", "gpu2"):
        error = three.command("launch", str(spec), code=1)["error"]
    assert error["code"] == "NODES_UNREACHABLE"
    where = f"gpu2 can't connect to gpu3 ({three.network.address('gpu3')}, port "
    assert error["message"].startswith(where)
    assert "gpu3 can't" not in error["message"]  # that way is open
    for host in three.hosts.values():
        assert not list((host.home / "trainmaster/runs").glob("parted-*"))


def test_hosts_with_other_versions_are_refused(two: TwoHosts) -> None:
    error = _probing_error(two, [_facts("gpu1"), _facts("gpu2", torch="2.12.0")])
    assert error.code == "NODES_DIFFER"
    assert "PyTorch of gpu1 and gpu2 differ: 2.13.0, and 2.12.0" in error.message


def test_hosts_that_share_their_folder_for_runs_are_refused(two: TwoHosts) -> None:
    record = two.hosts["gpu1"].record("twin")
    address = f"{record.user}@{record.address}:{record.port}"
    two.command("hosts", "add", "twin", address, "--key", str(record.key), "--root", record.root)
    spec = two.spec(name="shared", host="[gpu1, twin]")
    error = two.command("launch", spec, code=1)["error"]
    assert error["code"] == "NODES_DIFFER"
    assert "gpu1 and twin have one folder for runs" in error["message"]
    runs = two.hosts["gpu1"].home / "trainmaster/runs"
    assert not [run for run in runs.iterdir() if run.name.startswith("shared-")]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"host": "[gpu1, gpu1]"}, "INVALID_VALUE", "names gpu1 twice"),
        ({"host": "[gpu1, local]"}, "INVALID_VALUE", "names local among several hosts"),
        ({"host": "[gpu1, elsewhere]"}, "HOST_UNKNOWN", "elsewhere"),
        ({"framework": "nanogpt"}, "NOT_YET_SUPPORTED", "`host` lists 2 machines"),
    ],
)
def test_what_several_hosts_cannot_do_is_named(
    two: TwoHosts, changes: dict[str, str], code: str, words: str
) -> None:
    error = two.command("plan", two.spec(**changes), code=1)["error"]
    assert error["code"] == code
    assert words in error["message"]


def _facts(name: str, torch: str = "2.13.0") -> HostFacts:
    return HostFacts(
        hostname=name,
        root="/nowhere",
        cores=2,
        memory_total_gib=8,
        memory_available_gib=8,
        disk_free_gib=8,
        python_version="3.11.2",
        torch=TorchFacts(version=torch),
    )


def _probing_error(two: TwoHosts, facts: list[HostFacts]) -> HostError:
    """What probing both hosts is refused with; no PyTorch is started there."""
    with open_workspace(two.command.environment) as workspace:

        async def probe() -> None:
            await probe_nodes(workspace, NAMES, facts)

        with pytest.raises(HostError) as refused:
            run_async(probe)
        return refused.value

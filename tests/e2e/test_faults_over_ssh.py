"""The fault loop on a host over SSH, and an client that is killed again and again.

`tests/support/runs/faults.py` reports how often, and which.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.backends.ssh_hosts import CuttingProxy, Sshd
from support.runs.faults import (
    KILLS,
    SEED,
    assert_the_same_was_learnt,
    strikes_on,
    train,
    two_light_specs,
)
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    kill,
    let_it_run,
    wait_until,
)
from support.sync.mirrors import assert_mirror_equals_the_host

OPERATOR_KILLS = 2 + 2 * KILLS
PHASES = ("launching", "uploading", "preparing", "training")
LARGE_LINES = 1_500_000
# So late, some 10 MB/s pass: the upload of 45 MB lasts for a few seconds.
SLOW_S = 0.1


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd(rc="echo Welcome to the host\n") as box:
        yield box


@pytest.fixture
def proxy(sshd: Sshd) -> Iterator[CuttingProxy]:
    with CuttingProxy((sshd.address, sshd.port)) as passing:
        yield passing


@pytest.fixture
def remote(home: Path, sshd: Sshd, proxy: CuttingProxy) -> CommandLine:
    """`trainmaster` in a home that knows the host as `gpu1`."""
    command = CommandLine(home, "gpu1", sshd.home / "trainmaster")
    record = sshd.record()
    address = f"{record.user}@{proxy.address}:{proxy.port}"
    command("hosts", "add", "gpu1", address, "--key", str(record.key), "--root", record.root)
    return command


@pytest.mark.long
def test_a_run_over_ssh_survives_whatever_is_killed_with_nothing_lost_or_doubled(
    remote: CommandLine, tmp_path: Path, sshd: Sshd
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    quick, struck = two_light_specs(tmp_path, "gpu1")
    strikes = {
        **strikes_on(remote, "trainer", "hold", "supervisor"),
        "connections": lambda _run: sshd.drop_connections(),
        "the host's follower": lambda _run: [kill(pid) for pid in sshd.followers],
    }
    undisturbed = train(remote, quick, {}, 0)
    disturbed = train(remote, struck, strikes, KILLS)
    assert_the_same_was_learnt(remote, undisturbed, disturbed)


@pytest.mark.long
def test_an_client_that_is_killed_at_any_time_loses_and_doubles_nothing(
    remote: CommandLine, tmp_path: Path, proxy: CuttingProxy
) -> None:
    """Killed as a whole, transfers included, in every phase; `OPERATOR_KILLS` times in all."""
    print(f"seed {SEED}, {OPERATOR_KILLS} kills")
    chosen = random.Random(SEED)
    spec = tmp_path / "spec.yaml"
    large = tmp_path / "corpus" / "large.txt"
    large.parent.mkdir()
    large.write_text("A line of text to learn from.\n" * LARGE_LINES)
    data = f"{{sources: [{{path: {large.parent}}}]}}"
    words = ("--data", "{data}", "--every", "50", *lasting())
    spec.write_text(light_spec(tmp_path, *words, host="gpu1", steps="200", data=data))
    proxy.latency_s = SLOW_S
    seen = []
    for number in range(OPERATOR_KILLS):
        phase = number * len(PHASES) // OPERATOR_KILLS
        launcher = remote.start("launch", str(spec), "--idempotency-key", "once", "--json")
        wait_until(lambda phase=phase: _phase(remote) >= phase, PHASES[phase], LONGEST_S)
        let_it_run(chosen.uniform(0.0, 0.5))
        seen.append(PHASES[_phase(remote)])
        killed = [kill(pid) for pid in _operators(remote.home)]
        print(f"killed {len(killed)} processes while {seen[-1]}")
        launcher.communicate()
    proxy.latency_s = 0.0
    run = remote("launch", str(spec), "--idempotency-key", "once")["run_id"]
    assert [row["run_id"] for row in remote("runs")["runs"]] == [run]
    ended = remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    loss = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, 201))
    assert remote("status", run)["attempt"] == 1
    assert_mirror_equals_the_host(remote, run)
    assert {"launching", "uploading"} <= set(seen)


def _phase(remote: CommandLine) -> int:
    """How far the host's one run has come, as a place in `PHASES`."""
    while True:
        with suppress(FileNotFoundError):  # a folder got its name meanwhile: read again
            return _phase_by_its_files(remote)


def _phase_by_its_files(remote: CommandLine) -> int:
    if list(remote.root.glob("runs/*/attempts/*/events.jsonl")):
        return 3
    if list(remote.root.glob("cache/**/large.txt")):
        return 2
    return 1 if list(remote.root.glob("cache/models/.*.receiving/*.part")) else 0


def _operators(home: Path) -> list[int]:
    """The processes of the client that work in a home."""
    wanted = f"TRAINMASTER_HOME={home}".encode()
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment:
            found.append(pid)
    return found

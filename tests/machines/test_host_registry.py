"""The registry of hosts, against real sshds: atomic addition, explicit trust of new keys."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from support.backends.ssh_hosts import Sshd, make_key
from support.backends.tcp_proxy import free_port
from support.machines.checked_hosts import add, check, rows
from support.runs.running_run import run_async
from support.session.tiers import by_engines

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import HostError, TrainmasterError
from trainmaster.machines.cache_gc import collect
from trainmaster.machines.host_options import HostOptions
from trainmaster.machines.host_registry import add_host, list_hosts, remove_host, trust_host
from trainmaster.machines.open_host import open_host
from trainmaster.store.host_record import TransportName
from trainmaster.store.run import Run
from trainmaster.store.run_id import new_run_id
from trainmaster.sync.last_pass import record_pass
from trainmaster.sync.workspace import Workspace

_OTHER_TRANSPORTS = [name for name in get_args(TransportName) if name != "asyncssh"]


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as started:
        yield started


def nothing_is_kept(workspace: Workspace) -> bool:
    folder = workspace.home.root / "hosts"
    return workspace.control.hosts() == [] and not (folder.exists() and list(folder.iterdir()))


def test_adding_a_host_pins_its_key_and_returns_the_fingerprint(
    workspace: Workspace, sshd: Sshd
) -> None:
    answer = add(workspace, sshd)
    kind, key = sshd.known_hosts().split()[1:]
    pinned = workspace.home.pins("gpu1").read_text()
    assert pinned.split()[1:] == [kind, key]
    assert workspace.home.pins("gpu1").stat().st_mode & 0o777 == 0o600
    assert answer.fingerprint is not None
    assert answer.fingerprint in rows(answer)["host key"].found
    assert rows(answer)["auth"].found.startswith("in as root with ")
    assert {"reachable", "shell", "python"} <= set(rows(answer))
    assert [row.state for row in answer.checks if row.state == "fail"] == []
    [record] = workspace.control.hosts()
    assert (record.address, record.user, record.port) == (sshd.address, sshd.user, sshd.port)
    left = {path.name for path in workspace.home.pins("gpu1").parent.iterdir()}
    assert left == {"known_hosts", "reached"}


@pytest.mark.parametrize(
    "name", ["local", "debug", "kaggle", "../up", "-rf", "a b", "a\nb", "", "x" * 64]
)
def test_a_name_that_cannot_be_used_is_refused_before_anything(
    workspace: Workspace, name: str
) -> None:
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: add_host(workspace, name, "root@nowhere.invalid", HostOptions()))
    assert caught.value.code in ("BAD_ARGUMENT", "UNSAFE_NAME")
    assert nothing_is_kept(workspace)


@pytest.mark.parametrize(
    ("address", "changes"),
    [
        ("-oProxyCommand=sh", {}),
        ("root@host:99999", {}),
        ("root@host", {"root": "relative"}),
        ("root@host", {"root": "/"}),
        ("root@host", {"root": "~/../other"}),
        ("root@host", {"cache": "/a\nb"}),
        ("root@host", {"jump": "-oProxyCommand=sh"}),
        ("root@host", {"key": "/no/such/key"}),
    ],
)
def test_hostile_options_are_refused_before_anything(
    workspace: Workspace, address: str, changes: dict[str, str]
) -> None:
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: add_host(workspace, "gpu1", address, HostOptions(**changes)))  # type: ignore[arg-type]
    assert caught.value.code in ("BAD_ARGUMENT", "UNSAFE_NAME")
    assert nothing_is_kept(workspace)


def test_a_refused_port_fails_and_nothing_is_kept(workspace: Workspace) -> None:
    port = free_port("127.0.0.1")
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: add_host(workspace, "gpu1", f"root@127.0.0.1:{port}", HostOptions()))
    assert caught.value.code == "HOST_UNREACHABLE"
    assert "refused" in caught.value.message
    assert "--offline" in caught.value.fix
    assert nothing_is_kept(workspace)


def test_a_server_that_does_not_speak_ssh_is_reported(workspace: Workspace) -> None:
    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"root@127.0.0.1:{server.server_address[1]}"
        try:
            with pytest.raises(TrainmasterError, match="does not speak SSH"):
                run_async(lambda: add_host(workspace, "gpu1", address, HostOptions()))
        finally:
            server.shutdown()
    assert nothing_is_kept(workspace)


def test_a_refused_key_is_an_error_and_nothing_is_kept(
    workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    with pytest.raises(TrainmasterError) as caught:
        add(workspace, sshd, key=str(other))
    assert caught.value.code == "AUTH_FAILED"
    assert nothing_is_kept(workspace)


def test_an_unreachable_host_can_be_added_offline_and_is_pinned_later(
    workspace: Workspace, sshd: Sshd
) -> None:
    sshd.halt()
    answer = add(workspace, sshd, offline=True)
    assert (answer.fingerprint, answer.checks) == (None, [])
    answer = check(workspace)
    assert not answer.ok
    assert rows(answer)["reachable"].state == "fail"
    [_, row] = run_async(lambda: list_hosts(workspace)).hosts
    assert row.state == "unreachable"
    sshd.start()
    assert rows(check(workspace))["host key"].state == "ok"
    assert workspace.home.pins("gpu1").exists()


def test_a_name_is_taken_once(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd)
    pinned = workspace.home.pins("gpu1").read_bytes()
    with pytest.raises(TrainmasterError) as caught:
        add(workspace, sshd)
    assert caught.value.code == "HOST_EXISTS"
    assert workspace.home.pins("gpu1").read_bytes() == pinned


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["asyncssh", *by_engines(*_OTHER_TRANSPORTS)])
def test_a_changed_key_is_refused_until_it_is_trusted(
    workspace: Workspace, sshd: Sshd, transport: str
) -> None:
    before = add(workspace, sshd, transport=transport).fingerprint
    sshd.rotate_host_key()
    answer = check(workspace)
    assert rows(answer)["host key"].state == "fail"
    assert "hosts trust gpu1" in str(rows(answer)["host key"].remedy)
    assert rows(answer)["reachable"].state == "ok"
    assert "auth" not in rows(answer)
    trusted = run_async(lambda: trust_host(workspace, "gpu1"))
    assert trusted.changed
    assert str(before) in trusted.pinned[0]
    assert str(before) not in trusted.now[0]
    assert rows(check(workspace))["host key"].state == "ok"


@pytest.mark.slow
def test_an_address_has_one_key_under_all_its_names(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd, transport="asyncssh")
    sshd.rotate_host_key()
    with pytest.raises(HostError) as refused:
        add(workspace, sshd, "gpu2", transport="asyncssh")
    assert refused.value.code == "HOST_KEY_CHANGED"
    assert "gpu1" in refused.value.message
    run_async(lambda: trust_host(workspace, "gpu1"))
    add(workspace, sshd, "gpu2", transport="asyncssh")
    sshd.rotate_host_key()
    run_async(lambda: trust_host(workspace, "gpu2"))
    assert rows(check(workspace))["host key"].state == "ok"


def test_trusting_what_cannot_be_reached_keeps_the_pinned_key(
    workspace: Workspace, sshd: Sshd
) -> None:
    add(workspace, sshd)
    pinned = workspace.home.pins("gpu1").read_bytes()
    sshd.halt()
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: trust_host(workspace, "gpu1"))
    assert caught.value.code == "HOST_UNREACHABLE"
    assert workspace.home.pins("gpu1").read_bytes() == pinned


def test_trusting_an_unchanged_key_says_so(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd)
    assert not run_async(lambda: trust_host(workspace, "gpu1")).changed


def open_run(workspace: Workspace, host: str, fingerprint: str = "") -> str:
    run = Run(
        run_id=new_run_id("gpt"),
        name="gpt",
        created_t=time.time(),
        host=host,
        placement=1,
        spec="",
        document={"data": {"fingerprint": fingerprint}, "labels": {}},
        plan={},
        labels={},
        closed=False,
        cleaned=False,
    )
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/nowhere", None)
    return run.run_id


def test_a_host_with_open_runs_is_removed_by_force_alone(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd)
    run_id = open_run(workspace, "gpu1")
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: remove_host(workspace, "gpu1"))
    assert caught.value.code == "RUN_IS_RUNNING"
    assert run_id in caught.value.message
    assert run_async(lambda: remove_host(workspace, "gpu1", force=True)).abandoned == [run_id]
    assert nothing_is_kept(workspace)
    with pytest.raises(TrainmasterError) as unknown:
        run_async(lambda: remove_host(workspace, "gpu1"))
    assert unknown.value.code == "HOST_UNKNOWN"


def test_the_list_shows_this_machine_and_what_the_last_check_found(
    workspace: Workspace, sshd: Sshd
) -> None:
    add(workspace, sshd)
    local, row = run_async(lambda: list_hosts(workspace)).hosts
    assert (local.name, local.state, row.name, row.state) == ("local", "ok", "gpu1", "ok")
    run_async(lambda: add_host(workspace, "far", "me@far", HostOptions(offline=True)))
    rows_of = {one.name: one for one in run_async(lambda: list_hosts(workspace)).hosts}
    assert rows_of["far"].state == "unchecked"
    run_async(lambda: remove_host(workspace, "far"))
    assert row.address == f"root@{sshd.address}:{sshd.port}"
    open_run(workspace, "gpu1")
    check(workspace)
    _, row = run_async(lambda: list_hosts(workspace)).hosts
    assert (row.state, row.open_runs) == ("ok", 1)
    assert row.as_of is not None
    assert time.time() - row.as_of < 60


def test_the_list_shows_the_result_of_following_its_runs(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd)
    check(workspace)
    open_run(workspace, "gpu1")
    lost = HostError("LINK_LOST", "The connection to gpu1 broke.", "Try again.")
    for error, state in ((lost, "unreachable"), (None, "ok")):
        record_pass(workspace.home, "gpu1", t=time.time(), error=error)
        _, row = run_async(lambda: list_hosts(workspace)).hosts
        assert row.state == state
        assert (row.untrusted_reason == lost.message) is (error is not None)


def test_any_command_that_reaches_a_host_refreshes_what_the_list_shows(
    workspace: Workspace, sshd: Sshd
) -> None:
    add(workspace, sshd)
    lost = HostError("LINK_LOST", "The connection to gpu1 broke.", "Try again.")
    record_pass(workspace.home, "gpu1", t=time.time() - 60, error=lost)
    workspace.home.reached("gpu1").unlink(missing_ok=True)
    _, before = run_async(lambda: list_hosts(workspace)).hosts
    run_async(lambda: reach(workspace))
    _, after = run_async(lambda: list_hosts(workspace)).hosts
    assert (before.state, after.state, after.untrusted_reason) == ("unreachable", "ok", None)


async def reach(workspace: Workspace) -> None:
    host = open_host(workspace, "gpu1")
    await host.python()
    await host.disconnect()


def test_an_unknown_host_says_how_it_is_added(workspace: Workspace) -> None:
    with pytest.raises(TrainmasterError) as caught:
        check(workspace, "gpu9")
    assert caught.value.code == "HOST_UNKNOWN"
    assert "hosts add gpu9" in caught.value.fix


@pytest.mark.slow
def test_gc_removes_cache_entries_that_no_run_names(workspace: Workspace, sshd: Sshd) -> None:
    add(workspace, sshd)
    cache = sshd.home / "trainmaster" / "cache"
    for name in ("a" * 32, "b" * 32):
        (cache / "data" / name).mkdir(parents=True)
        (cache / "data" / name / "part").write_bytes(b"12345")
    open_run(workspace, "gpu1", fingerprint="a" * 32)
    planned = run_async(lambda: collect(workspace, "gpu1", dry_run=True))
    assert [entry.name for entry in planned.removed] == ["b" * 32]
    assert (cache / "data" / ("b" * 32)).exists()
    done = run_async(lambda: collect(workspace, "gpu1"))
    assert done.freed_bytes == 5
    assert not (cache / "data" / ("b" * 32)).exists()
    assert (cache / "data" / ("a" * 32)).exists()
    assert {entry.kind for entry in done.kept} == {"data", "runtime"}

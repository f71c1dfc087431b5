"""Hosts on record, against real sshd's: added whole or not at all, trusted anew only when told."""

from __future__ import annotations

import json
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from support.backends.ssh_hosts import Sshd, make_key
from support.backends.tcp_proxy import free_port
from support.runs.running_run import run_async

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.machines.cache_gc import collect
from trainmaster.machines.check import check_host
from trainmaster.machines.registry import (
    HostOptions,
    add_host,
    list_hosts,
    open_host,
    remove_host,
    trust_host,
)
from trainmaster.store.host_record import TransportName
from trainmaster.store.run import Run, new_run_id
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import HostAddedAnswer, HostCheckAnswer, HostCheckRow
from trainmaster.words.errors import TrainmasterError

BINARIES = ("/usr/bin", "/usr/local/bin", "/bin")


@pytest.fixture
def box() -> Iterator[Sshd]:
    with Sshd() as started:
        yield started


def options(box: Sshd, **changes: object) -> HostOptions:
    known = {"key": str(box.key), "root": f"{box.home}/trainmaster"}
    return HostOptions(**{**known, **changes})  # type: ignore[arg-type]


def add(workspace: Workspace, box: Sshd, name: str = "gpu1", **changes: object) -> HostAddedAnswer:
    address = f"{box.user}@{box.address}:{box.port}"
    return run_async(lambda: add_host(workspace, name, address, options(box, **changes)))


def check(workspace: Workspace, name: str = "gpu1") -> HostCheckAnswer:
    return run_async(lambda: check_host(workspace, name))


def rows(answer: HostCheckAnswer | HostAddedAnswer) -> dict[str, HostCheckRow]:
    return {row.name: row for row in answer.checks}


def nothing_is_kept(workspace: Workspace) -> bool:
    folder = workspace.home.root / "hosts"
    return workspace.control.hosts() == [] and not (folder.exists() and list(folder.iterdir()))


def test_a_host_is_added_with_its_key_pinned_and_told(workspace: Workspace, box: Sshd) -> None:
    answer = add(workspace, box)
    kind, key = box.known_hosts().split()[1:]
    pinned = workspace.home.pins("gpu1").read_text()
    assert pinned.split()[1:] == [kind, key]
    assert workspace.home.pins("gpu1").stat().st_mode & 0o777 == 0o600
    assert answer.fingerprint is not None
    assert answer.fingerprint in rows(answer)["host key"].found
    assert rows(answer)["auth"].found.startswith("in as root with ")
    assert {"reachable", "shell", "python"} <= set(rows(answer))
    assert [row.state for row in answer.checks if row.state == "fail"] == []
    [record] = workspace.control.hosts()
    assert (record.address, record.user, record.port) == (box.address, box.user, box.port)
    left = {path.name for path in workspace.home.pins("gpu1").parent.iterdir()}
    assert left == {"known_hosts"}


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


def test_a_refused_port_is_told_at_once_and_nothing_is_kept(workspace: Workspace) -> None:
    port, begun = free_port("127.0.0.1"), time.monotonic()
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: add_host(workspace, "gpu1", f"root@127.0.0.1:{port}", HostOptions()))
    assert caught.value.code == "HOST_UNREACHABLE"
    assert "refused" in caught.value.message
    assert "--offline" in caught.value.fix
    assert time.monotonic() - begun < 5
    assert nothing_is_kept(workspace)


def test_what_does_not_speak_ssh_is_told_apart(workspace: Workspace) -> None:
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


def test_a_key_that_is_not_let_in_is_an_error_and_nothing_is_kept(
    workspace: Workspace, box: Sshd, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    with pytest.raises(TrainmasterError) as caught:
        add(workspace, box, key=str(other))
    assert caught.value.code == "AUTH_FAILED"
    assert nothing_is_kept(workspace)


def test_an_unreachable_host_can_be_noted_and_is_pinned_later(
    workspace: Workspace, box: Sshd
) -> None:
    box.halt()
    answer = add(workspace, box, offline=True)
    assert (answer.fingerprint, answer.checks) == (None, [])
    told = check(workspace)
    assert not told.ok
    assert rows(told)["reachable"].state == "fail"
    [_, row] = run_async(lambda: list_hosts(workspace)).hosts
    assert row.state == "unreachable"
    box.start()
    assert rows(check(workspace))["host key"].state == "ok"
    assert workspace.home.pins("gpu1").exists()


def test_a_name_is_taken_once(workspace: Workspace, box: Sshd) -> None:
    add(workspace, box)
    pinned = workspace.home.pins("gpu1").read_bytes()
    with pytest.raises(TrainmasterError) as caught:
        add(workspace, box)
    assert caught.value.code == "HOST_EXISTS"
    assert workspace.home.pins("gpu1").read_bytes() == pinned


@pytest.mark.parametrize("transport", get_args(TransportName))
def test_a_changed_key_is_refused_until_it_is_trusted(
    workspace: Workspace, box: Sshd, transport: str
) -> None:
    before = add(workspace, box, transport=transport).fingerprint
    box.rotate_host_key()
    told = check(workspace)
    assert rows(told)["host key"].state == "fail"
    assert "hosts trust gpu1" in str(rows(told)["host key"].remedy)
    assert rows(told)["reachable"].state == "ok"
    assert "auth" not in rows(told)
    trusted = run_async(lambda: trust_host(workspace, "gpu1"))
    assert trusted.changed
    assert str(before) in trusted.pinned[0]
    assert str(before) not in trusted.now[0]
    assert rows(check(workspace))["host key"].state == "ok"


def test_trusting_what_cannot_be_reached_keeps_the_pinned_key(
    workspace: Workspace, box: Sshd
) -> None:
    add(workspace, box)
    pinned = workspace.home.pins("gpu1").read_bytes()
    box.halt()
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: trust_host(workspace, "gpu1"))
    assert caught.value.code == "HOST_UNREACHABLE"
    assert workspace.home.pins("gpu1").read_bytes() == pinned


def test_trusting_an_unchanged_key_says_so(workspace: Workspace, box: Sshd) -> None:
    add(workspace, box)
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


def test_a_host_with_open_runs_is_removed_by_force_alone(workspace: Workspace, box: Sshd) -> None:
    add(workspace, box)
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
    workspace: Workspace, box: Sshd
) -> None:
    add(workspace, box)
    local, row = run_async(lambda: list_hosts(workspace)).hosts
    assert (local.name, row.name, row.state) == ("local", "gpu1", "unchecked")
    assert row.address == f"root@{box.address}:{box.port}"
    open_run(workspace, "gpu1")
    check(workspace)
    _, row = run_async(lambda: list_hosts(workspace)).hosts
    assert (row.state, row.open_runs) == ("ok", 1)
    assert row.as_of is not None
    assert time.time() - row.as_of < 60


def test_the_list_shows_what_whoever_follows_its_runs_has_found(
    workspace: Workspace, box: Sshd
) -> None:
    add(workspace, box)
    check(workspace)
    open_run(workspace, "gpu1")
    note = workspace.home.follower_pass("gpu1")
    note.parent.mkdir(parents=True, exist_ok=True)
    lost = {"code": "LINK_LOST", "message": "The connection to gpu1 broke."}
    for error, state in ((lost, "unreachable"), (None, "ok")):
        note.write_text(json.dumps({"t": time.time(), "skew_s": 0.0, "error": error}))
        _, row = run_async(lambda: list_hosts(workspace)).hosts
        assert row.state == state
        assert (row.reason == lost["message"]) is (error is not None)


def test_any_command_that_reaches_a_host_refreshes_what_the_list_shows(
    workspace: Workspace, box: Sshd
) -> None:
    add(workspace, box)
    note = workspace.home.follower_pass("gpu1")
    note.parent.mkdir(parents=True, exist_ok=True)
    lost = {"code": "LINK_LOST", "message": "The connection to gpu1 broke."}
    note.write_text(json.dumps({"t": time.time() - 60, "skew_s": 0.0, "error": lost}))
    workspace.home.reached("gpu1").unlink(missing_ok=True)
    _, before = run_async(lambda: list_hosts(workspace)).hosts
    run_async(lambda: reach(workspace))
    _, after = run_async(lambda: list_hosts(workspace)).hosts
    assert (before.state, after.state, after.reason) == ("unreachable", "ok", None)


async def reach(workspace: Workspace) -> None:
    host = open_host(workspace, "gpu1")
    await host.python()
    await host.disconnect()


def test_a_check_tells_all_of_a_sound_box(workspace: Workspace, box: Sshd) -> None:
    add(workspace, box)
    answer = check(workspace)
    assert answer.ok, [row for row in answer.checks if row.state == "fail"]
    wanted = "reachable,host key,auth,shell,python,environments,root,cache,gpu,torch,clock"
    assert set(wanted.split(",")) <= set(rows(answer))
    assert [row.name for row in answer.checks if row.state != "ok" and not row.remedy] == []
    assert len(rows(answer)) == len(answer.checks)


def test_a_noisy_shell_is_quoted_and_does_not_hide_the_rest(workspace: Workspace) -> None:
    with Sshd(shell="bash", rc="echo Welcome to the box; echo careful >&2\n") as box:
        add(workspace, box)
        told = rows(check(workspace))
    assert told["shell"].state == "warn"
    assert "Welcome to the box" in told["shell"].found
    assert "torch" in told


def test_a_box_without_an_interpreter_still_tells_what_plain_commands_can(
    workspace: Workspace, box: Sshd
) -> None:
    hide_interpreters(box)
    added = rows(add(workspace, box))
    assert added["python"].state == "fail"
    answer = check(workspace)
    told = rows(answer)
    assert not answer.ok
    assert "apt install python3" in str(told["python"].remedy)
    assert {"root", "cache", "tmux or screen", "gpu", "clock"} <= set(told)
    assert told["root"].state == "ok"


def test_a_box_without_env_has_a_sound_shell_and_is_used_as_any_other(
    workspace: Workspace, box: Sshd
) -> None:
    hide(box, {Path(folder, name) for folder in BINARIES for name in ("env", "printenv")})
    add(workspace, box, root="~/trainings")
    told = rows(check(workspace))
    assert (told["shell"].state, told["root"].state) == ("ok", "ok")
    assert f"{box.home}/trainings" in told["root"].found


def hide_interpreters(box: Sshd) -> None:
    folders = (*BINARIES, "/opt/conda/bin", "/opt/miniconda3/bin")
    hide(box, {path.resolve() for name in folders for path in Path(name).glob("python*")})


def hide(box: Sshd, paths: set[Path]) -> None:
    """Put nothing in the place of each, in the box's own view of the disk."""
    for path in filter(Path.exists, paths):
        command = ["nsenter", f"--mount=/proc/{box.listener}/ns/mnt", "mount", "--bind"]
        subprocess.run([*command, "/dev/null", str(path)], check=True)


def test_a_root_that_cannot_be_written_fails_with_its_remedy(
    workspace: Workspace, tmp_path: Path
) -> None:
    with Sshd(user="trainer") as box:
        add(workspace, box, root="/proc/trainmaster")
        answer = check(workspace)
    assert not answer.ok
    assert rows(answer)["root"].state == "fail"


def test_this_machine_can_be_checked_too(workspace: Workspace) -> None:
    answer = check(workspace, "local")
    assert {"root", "gpu", "torch"} <= set(rows(answer))
    assert "auth" not in rows(answer)


def test_an_unknown_host_says_how_it_is_added(workspace: Workspace) -> None:
    with pytest.raises(TrainmasterError) as caught:
        check(workspace, "gpu9")
    assert caught.value.code == "HOST_UNKNOWN"
    assert "hosts add gpu9" in caught.value.fix


def test_the_cache_is_cleared_of_what_neither_side_names(workspace: Workspace, box: Sshd) -> None:
    add(workspace, box)
    cache = box.home / "trainmaster" / "cache"
    for name in ("a" * 32, "b" * 32):
        (cache / "data" / name).mkdir(parents=True)
        (cache / "data" / name / "part").write_bytes(b"12345")
    open_run(workspace, "gpu1", fingerprint="a" * 32)
    told = run_async(lambda: collect(workspace, "gpu1", dry_run=True))
    assert [entry.name for entry in told.removed] == ["b" * 32]
    assert (cache / "data" / ("b" * 32)).exists()
    done = run_async(lambda: collect(workspace, "gpu1"))
    assert done.freed_bytes == 5
    assert not (cache / "data" / ("b" * 32)).exists()
    assert (cache / "data" / ("a" * 32)).exists()
    assert {entry.kind for entry in done.kept} == {"data", "runtime"}

"""One suite for every transport: what processes that connect show, and what they leave behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.backends.reachability import PASSPHRASE, Reach, SharedHosts, User, said
from support.backends.ssh_hosts import Sshd, make_key
from support.runs.running_run import wait_until

CALL = """\
import asyncio, sys
from pathlib import Path
from trainmaster.store.host_record import HostRecord
from trainmaster.backends.ssh.link import open_transport
async def main():
    record = HostRecord("host", sys.argv[1], key=sys.argv[2] or None, transport=sys.argv[3])
    transport = await open_transport(record, Path(sys.argv[4]))
    print((await transport.run(["echo", "in", "there"], timeout_s=20)).output, flush=True)
    if sys.argv[5] == "stay":
        await asyncio.sleep(1000)
    await transport.disconnect()
asyncio.run(main())
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket, as pytest's own may not."""
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        yield Path(folder)


def test_a_passphrase_is_in_no_process_list_and_never_reaches_the_host(
    reach: Reach, user: User
) -> None:
    passphrase = f"seen nowhere {os.getpid()} {time.monotonic_ns()}"  # nor by another worker's test
    key = make_key(user.home / "locked", passphrase)
    user.knows_passphrase(passphrase)
    user.configure("Host *\n  SendEnv *")
    with Sshd(options={"AcceptEnv": "*"}) as host:
        host.allow(key.with_suffix(".pub").read_text())
        with _watched_process_lists() as seen:
            environment = said(reach, host, "env", key=str(key))
        assert passphrase not in environment
        assert seen and not [line for line in seen if passphrase.encode() in line]


@pytest.mark.parametrize("name", ["openssh", "paramiko"])
def test_a_transport_that_is_not_installed_says_how_it_is(
    hosts: SharedHosts, tmp_path: Path, name: str
) -> None:
    hide = "import sys; sys.modules['paramiko'] = None; "
    host = hosts()
    process = _call(host, host.key, name, tmp_path, program=hide + CALL, path=str(tmp_path))
    _, output = process.communicate(timeout=60)
    assert b"TRANSPORT_MISSING" in output
    assert {"openssh": b"openssh-client", "paramiko": b"'paramiko>=3.5'"}[name] in output


def test_a_passphrase_is_asked_for_on_a_terminal(
    reach: Reach, hosts: SharedHosts, user: User
) -> None:
    host = hosts()
    key = make_key(user.home / "locked", PASSPHRASE)
    host.allow(key.with_suffix(".pub").read_text())
    output = _on_terminal(host, key, reach, answer=PASSPHRASE)
    assert "in there" in output
    assert PASSPHRASE not in output


@pytest.mark.parametrize("way", ["disconnect", "kill"])
def test_the_systems_ssh_leaves_nothing_running(
    hosts: SharedHosts, tmp_path: Path, short_folder: Path, way: str
) -> None:
    host = hosts()
    marker = f"ControlPath={short_folder}".encode()  # where its socket lies
    process = _call(host, host.key, "openssh", tmp_path, stay=way == "kill", folder=short_folder)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in there\n"
    if way == "kill":
        assert _carrying(marker)
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    wait_until(lambda: not _carrying(marker), "the end of ssh's master")
    if way == "kill":  # the next process cleans up
        assert list(short_folder.glob("tm-ssh-*"))
        _call(host, host.key, "openssh", tmp_path, folder=short_folder).communicate(timeout=60)
    assert not list(short_folder.glob("tm-ssh-*"))


def _call(
    host: Sshd,
    key: Path,
    transport: str,
    home: Path,
    *,
    stay: bool = False,
    program: str = CALL,
    path: str | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Another process that connects to a host, runs a command, and waits or exits."""
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.update({"PATH": path} if path else {})
    environment.update({"TMPDIR": str(folder)} if folder else {})
    way = f"{host.user}@{host.address}:{host.port}"
    arguments = [way, str(key), transport, str(home / "pins"), "stay" if stay else "go"]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _on_terminal(host: Sshd, key: Path, reach: Reach, *, answer: str) -> str:
    """The same on a terminal of its own; all that it shows."""
    way = f"{host.user}@{host.address}:{host.port}"
    arguments = [way, str(key), reach.transport, str(reach.pins), "go"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-c", CALL, *arguments], environment)
    shown = ""
    try:
        while "assphrase" not in shown:
            shown += os.read(terminal, 1000).decode()
        os.write(terminal, answer.encode() + b"\n")
        while True:
            shown += os.read(terminal, 1000).decode()
    except OSError:  # the terminal's other side is closed
        return shown
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def _carrying(text: bytes) -> list[bytes]:
    """The command lines of this machine's processes that hold `text`."""
    return [line for line in _command_lines() if text in line]


def _command_lines() -> Iterator[bytes]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue


@contextmanager
def _watched_process_lists() -> Iterator[set[bytes]]:
    """Every command line that any process has in the meantime."""
    seen: set[bytes] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.001):
            seen.update(_command_lines())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()

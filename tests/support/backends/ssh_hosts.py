"""Hosts for tests: real sshds with separate accounts.

A host runs in a mount namespace with its own password file, so that no account of this machine is
made or changed; all that is ever started on it is known by that namespace, and ended with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pytest
from support.attack.small_disk import mounts_disk
from support.backends.network_namespaces import Network
from support.backends.tcp_proxy import CuttingProxy, free_port
from support.host.torch_check_cache import torch_checks
from support.runs.running_run import command_line, kill, wait_until

from trainmaster.store.host_record import HostRecord

__all__ = ["CuttingProxy", "Network", "Sshd", "make_key"]

USER_ID = 4242
RC_FILES = {
    "bash": ".bashrc",
    "zsh": ".zshenv",
    "fish": ".config/fish/config.fish",
    "tcsh": ".cshrc",
    "dash": ".ssh/rc",  # dash reads none of its own; this one, sshd runs before any command
}
_SFTP = {"internal-sftp": "internal-sftp", "external": "/usr/lib/openssh/sftp-server"}
_ENTER = """
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/shadow" /etc/shadow &&
mount --bind "$1/group" /etc/group && shift && exec "$@"
"""


class Sshd:
    """A host: an sshd, the account that is reached on it, and whatever runs there.

    `user`: root or an ordinary user; `shell`: bash, dash, zsh, fish or tcsh; `rc`: text of its rc
    file; `sftp`: None for no subsystem; `netns`: a network namespace's name; `pid_namespace`: with
    process numbers of its own, so that it can `reboot()`; `options`: more lines of sshd_config;
    `environment`: variables of every session.

    `address`, `port`, `user`, `key` (path of a private key that is let in), `root` (its folder),
    `home` (the account's, as seen from here and there), `log` (path of sshd's log).
    """

    def __init__(
        self,
        *,
        user: str = "root",
        shell: str = "bash",
        rc: str | None = None,
        sftp: Literal["internal-sftp", "external"] | None = "internal-sftp",
        max_sessions: int = 10,
        address: str = "127.0.0.1",
        port: int | None = None,
        netns: str | None = None,
        pid_namespace: bool = False,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("hosts have accounts and namespaces of their own: that takes root")
        self.address, self.user, self.shell = address, user, shell
        self.port = port or free_port("0.0.0.0" if netns else address)
        self._netns, self._pid_namespace = netns, pid_namespace
        self._environment = dict(environment or {})
        self._options = {"MaxSessions": str(max_sessions), **(options or {})}
        if sftp is not None:
            self._options["Subsystem"] = f"sftp {_SFTP[sftp]}"
        self.root = Path(tempfile.mkdtemp(prefix="tm-box-"))
        self.root.chmod(0o755)  # the ordinary user passes through
        self.home = self.root / "home"
        self._windows = self.root / "windows"  # else all hosts on this machine would share theirs
        self.key, self.log = self.root / "id_ed25519", self.root / "sshd.log"
        self._starter: subprocess.Popen[bytes] | None = None
        self._namespaces: list[int] = []  # open descriptors: so long, none is given to others
        self._make_account(rc)
        for key in (self.key, self.root / "host_ed25519"):
            make_key(key)
        self.allow(self.key.with_suffix(".pub").read_text())

    def __enter__(self) -> Sshd:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Sshd:
        """Start sshd; returns when it takes connections."""
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        config = self.root / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in self._config().items()))
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._starter = subprocess.Popen(
                [*self._entering(), "/usr/sbin/sshd", "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: self._listens(begin), f"sshd on {self.address}:{self.port}")
        self._namespaces.append(os.open(f"/proc/{self.listener}/ns/mnt", os.O_RDONLY))
        return self

    def stop(self) -> None:
        """End sshd and all that was ever started on the host, and remove its folder."""
        self.halt()
        wait_until(self._kill_processes, f"the end of {self.root}")
        for namespace in self._namespaces:
            os.close(namespace)
        self._namespaces.clear()
        torch_checks.keep(self.home / "trainmaster")
        shutil.rmtree(self.root, ignore_errors=True)

    def halt(self) -> None:
        """End sshd and its connections; the host's other processes continue until `start`.

        A host with process numbers of its own loses all processes, as by a power cut.
        """
        if self._starter is None:
            return
        kill(self.listener)
        self._starter.wait(60)
        self._starter = None
        # Those of the listener's last moment too, which may still hold its port.
        wait_until(self._kill_servers, f"the end of the sshd's of {self.root}")

    def reboot(self) -> None:
        """Lose every process at once, and come back under new process numbers."""
        if not self._pid_namespace:
            raise ValueError("only a host with a pid_namespace can reboot")
        self.halt()
        wait_until(lambda: not self.processes, "the end of all processes")
        self.start()

    def drop_connections(self) -> None:
        """SIGKILL the sshd of every connection; processes on the host continue."""
        for pid in self.connections:
            kill(pid)

    def rotate_host_key(self) -> None:
        """Show another host key from the next connection on, as an impostor would."""
        make_key(self.root / "host_ed25519")
        listener = self.listener
        begin = self.log.stat().st_size
        os.kill(listener, signal.SIGHUP)
        wait_until(lambda: self._listens(begin), "sshd with its other key")

    def allow(self, public_key: str) -> None:
        """Let another key in."""
        with (self.root / "authorized_keys").open("a") as file:
            file.write(public_key.strip() + "\n")

    def record(self, name: str = "gpu1", **changes: Any) -> HostRecord:
        """What `hosts add` would note about this host; runs lie in its home."""
        known: dict[str, Any] = {
            "address": self.address,
            "user": self.user,
            "port": self.port,
            "key": str(self.key),
            "root": f"{self.home}/trainmaster",
        }
        return HostRecord(name, **{**known, **changes})

    def known_hosts(self) -> str:
        """The line by which an OpenSSH client knows this host."""
        key = " ".join((self.root / "host_ed25519.pub").read_text().split()[:2])
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{name} {key}\n"

    def mount_small_disk(self, folder: Path, size_mib: int = 1, *, by_quota: bool = False) -> None:
        """A disk of that size, or one with such a quota, on a folder of the host, there alone."""
        folder.mkdir(parents=True, exist_ok=True)
        mount = f'{mounts_disk(size_mib, by_quota=by_quota)} && chmod 1777 "$1"'
        here = f"--mount=/proc/{self.listener}/ns/mnt"
        subprocess.run(["nsenter", here, "sh", "-c", mount, "sh", str(folder)], check=True)

    def mount(self, folder: Path, path: str) -> None:
        """A folder of this machine at a path of the host below /mnt, there alone."""
        here = ["nsenter", f"--mount=/proc/{self.listener}/ns/mnt"]
        for command in (
            ["mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            ["mkdir", "-p", path],
            ["mount", "--bind", str(folder), path],
        ):
            subprocess.run([*here, *command], check=True)

    @property
    def listener(self) -> int:
        """The pid, as seen from here, of the sshd that takes connections."""
        if self._starter is None:
            raise ValueError("the host is not running")
        if not self._pid_namespace:
            return self._starter.pid
        return _children(self._starter.pid)[0]

    @property
    def connections(self) -> list[int]:
        """The pids of the sshd's that each serve one connection."""
        found, waiting = [], [self.listener]
        while waiting:
            for pid in _children(waiting.pop()):
                if _name(pid).startswith("sshd"):
                    found.append(pid)
                    waiting.append(pid)
        return found

    @property
    def processes(self) -> list[int]:
        """The pids, as seen from here, of everything that runs on the host, sshd's included."""
        own = {os.fstat(namespace).st_ino for namespace in self._namespaces}
        return [pid for pid in _all_pids() if _mount_namespace(pid) in own]

    @property
    def followers(self) -> list[int]:
        """The pids of the processes on the host whose arguments name runs' files."""
        return [pid for pid in self.processes if b"follow" in command_line(pid)]

    def _config(self) -> dict[str, str]:
        return {
            "ListenAddress": self.address,
            "Port": str(self.port),
            "HostKey": str(self.root / "host_ed25519"),
            "AuthorizedKeysFile": str(self.root / "authorized_keys"),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "PrintLastLog": "no",
            "LogLevel": "VERBOSE",
            "SetEnv": " ".join(map(_quoted, self._variables().items())),
            **self._options,
        }

    def _variables(self) -> dict[str, str]:
        windows = {"TMUX_TMPDIR": "tmux", "SCREENDIR": "screen"}
        places = {name: f"{self._windows}/{folder}" for name, folder in windows.items()}
        return {**places, **self._environment}

    def _entering(self) -> list[str]:
        """The command line that brings a program into the host's namespaces."""
        network = ["nsenter", f"--net=/run/netns/{self._netns}"] if self._netns else []
        own_pids = ["--pid", "--fork", "--kill-child", "--mount-proc"]
        unshare = ["unshare", "--mount", "--propagation", "slave"]
        if self._pid_namespace:
            unshare += own_pids
        return [*network, *unshare, "sh", "-c", _ENTER, "sh", str(self.root / "etc")]

    def _listens(self, begin: int) -> bool:
        output = self.log.read_bytes()[begin:]
        if self._starter is not None and self._starter.poll() is not None:
            raise RuntimeError(f"sshd ended: {output.decode(errors='replace')[-800:]}")
        return b"Server listening on" in output

    def _kill_servers(self) -> bool:
        left = [pid for pid in self.processes if _name(pid).startswith("sshd")]
        for pid in left:
            kill(pid)
        return not left

    def _kill_processes(self) -> bool:
        left = self.processes
        for pid in left:
            kill(pid)
        return not left

    def _make_account(self, rc: str | None) -> None:
        shell = shutil.which(self.shell)
        if shell is None:
            pytest.fail(f"{self.shell} is not installed: run `make setup`")
        number = 0 if self.user == "root" else USER_ID
        self.home.mkdir(mode=0o700)
        if rc is not None:
            path = self.home / RC_FILES[self.shell]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rc)
        for path in [self.home, *self.home.rglob("*")]:
            os.chown(path, number, number)
        torch_checks.lend(self.home / "trainmaster", number)
        for folder in (self._windows, self._windows / "tmux", self._windows / "screen"):
            folder.mkdir(mode=0o700)
            os.chown(folder, number, number)
        etc = self.root / "etc"
        etc.mkdir()
        _write_entries(
            etc,
            passwd=f"{self.user}:x:{number}:{number}::{self.home}:{shell}",
            shadow=f"{self.user}:*:19000:0:99999:7:::",  # "!" would be locked: sshd lets none in
            group=f"{self.user}:x:{number}:",
        )


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """A new private key at `path`, in place of one that was there, its public one beside it."""
    path.unlink(missing_ok=True)
    bits = ["-b", "2048"] if kind == "rsa" else []  # searching for longer ones takes seconds
    command = ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def _write_entries(etc: Path, **entries: str) -> None:
    """This machine's account files, with one entry put in or replaced."""
    for name, entry in entries.items():
        account = entry.split(":")[0]
        lines = Path("/etc", name).read_text().splitlines()
        kept = [line for line in lines if line.split(":")[0] != account]
        target = etc / name
        target.write_text("\n".join([entry, *kept]) + "\n")
        target.chmod(0o640 if name == "shadow" else 0o644)


def _quoted(variable: tuple[str, str]) -> str:
    """As sshd_config has it, where a value may hold blanks."""
    text = "=".join(variable).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _mount_namespace(pid: int) -> int | None:
    """The inode of a process's mount namespace; None where it has ended, a zombie included."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino
    except OSError:
        return None

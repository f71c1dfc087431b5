"""A connection through the system's ssh: one master process, shared by all commands.

The master runs in the background once it is connected (ControlPersist), for as long as a client is
connected to its socket. This process holds such a connection, so that the master ends with it, also
after a kill.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainmaster.backends.ssh.bounded_output import read_bounded
from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.error_mapping import (
    CONNECT_TIMEOUT_S,
    authentication_refused,
    no_common_algorithm,
    not_installed,
    reason_of,
    unreachable,
)
from trainmaster.backends.ssh.host_keys import Pins, pin_of
from trainmaster.backends.ssh.openssh_config import (
    KnownHop,
    Prompts,
    config_file,
    hop_config,
    known_hosts_file,
    log_file,
)
from trainmaster.backends.ssh.private_keys import (
    PASSPHRASE_VARIABLE,
    collect_keys,
    key_locked,
    on_terminal,
)
from trainmaster.errors.errors import HostError
from trainmaster.home.scratch_folder import ScratchFolder

Cause = Literal["key_changed", "authentication_refused", "no_common_algorithm", "unreachable"]
_CHANGED = re.compile(
    r"fingerprint for the (\S+) key sent by the remote host is\s+(SHA256:[\w+/]+)"
)
_SIGNS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        "key_changed",
        re.compile(r"HOST IDENTIFICATION HAS CHANGED|host key is known for|Host key veri"),
    ),
    (
        "authentication_refused",
        re.compile(r"Permission denied|Too many authentication failures|No more auth"),
    ),
    ("no_common_algorithm", re.compile(r"Unable to negotiate with")),
)
_BEYOND = re.compile(r"open failed: (?:connect failed: )?(.+)")
# ssh's messages before it gives up; after others it continues.
_GIVEN_UP = re.compile(
    r"^(?:ssh: |kex_exchange_identification|ssh_dispatch_run_fatal|banner exchange|Timeout|"
    r"Connection (?:closed|reset|timed out)|Received disconnect|Disconnected from)",
    re.MULTILINE,
)
# A unix socket's path has at most 104 bytes on some systems, and ssh adds 17 while creating it.
_LONGEST_PATH = 80
_PERSIST_S = 10  # how long a master outlives its holder
_TOKEN_S = 120  # time for a user to enter a one-time code
_END_S = 5.0
_GREETING_BYTES = 12  # the master's greeting: length, type and version, 4 bytes each
# Answers only the question for the passphrase: others could come from a server.
_ANSWER = """\
#!/bin/sh
case "$1" in
  "Enter passphrase for "*) printf '%s\\n' "$TRAINMASTER_KEY_PASSPHRASE" ;;
  *) exit 1 ;;
esac
"""


class SshMaster:
    """A connected master; `folder` holds its socket and configuration."""

    def __init__(
        self,
        program: str,
        folder: ScratchFolder,
        held: socket.socket,
        environment: Mapping[str, str],
    ) -> None:
        self.environment = _without_passphrase(environment)
        self._program = program
        self._folder = folder.path
        self._held = held
        # If it is never closed: the socket closes with the object.
        self._last_will = weakref.finalize(self, folder.remove)

    def session(self, line: bytes) -> list[str | bytes]:
        """The arguments of ssh for one command over the connection.

        Without the master it fails: its ProxyCommand is invalid.
        """
        options = ["-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "ForwardAgent=no"]
        control = ["-S", str(_control(self._folder))]
        return [self._program, "-F", "/dev/null", *control, *options, "-T", "--", "host", line]

    async def alive(self) -> bool:
        """Whether the master still answers: after a lost link it does not."""
        with suppress(OSError, TimeoutError):
            (await _hold(self._folder)).close()
            return True
        return False

    async def close(self) -> None:
        """End the master and wait for its end. Idempotent."""
        if self._held.fileno() < 0:
            return
        with suppress(OSError):
            process = await asyncio.create_subprocess_exec(
                *(self._program, "-F", "/dev/null", "-S", str(_control(self._folder))),
                *("-O", "exit", "--", "host"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await process.wait()
        with suppress(OSError, TimeoutError):
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(_END_S):
                while await loop.sock_recv(self._held, _GREETING_BYTES):
                    continue
        self._held.close()
        await asyncio.to_thread(self._last_will)


async def start_master(endpoint: Endpoint, pins: Pins, environment: Mapping[str, str]) -> SshMaster:
    """Connect; each host key is pinned or compared before authentication.

    Raises:
        HostError: `TRANSPORT_MISSING`, `HOST_UNREACHABLE`, `HOST_KEY_CHANGED`, `AUTH_FAILED`,
            `KEY_LOCKED`.
    """
    program = shutil.which("ssh", path=environment.get("PATH"))
    if program is None:
        remedy = "Install OpenSSH's client (Debian: `apt install openssh-client`)."
        raise not_installed("openssh", remedy)
    folder = ScratchFolder("tm-ssh-", _LONGEST_PATH)
    try:
        await _Start(endpoint, pins, environment, folder.path).run(program)
        held = await _hold(folder.path)
    except (OSError, TimeoutError) as error:
        folder.remove()
        raise unreachable(endpoint, endpoint.target, reason_of(error)) from error
    except BaseException:
        folder.remove()
        raise
    return SshMaster(program, folder, held, environment)


class _Start:
    """The start of a master."""

    def __init__(
        self, endpoint: Endpoint, pins: Pins, environment: Mapping[str, str], folder: Path
    ) -> None:
        self._endpoint, self._pins, self._folder = endpoint, pins, folder
        self._passphrase = bool(environment.get(PASSPHRASE_VARIABLE))
        self._terminal = on_terminal() and not self._passphrase
        self._environment = environment

    async def run(self, program: str) -> None:
        """Start the master; keys that ssh accepted are pinned even if the login fails."""
        failed = await self._attempt(program)
        self._take_over_pins(connected=failed is None)
        if failed:
            raise await self._refusal(failed)

    async def _attempt(self, program: str) -> Failure | None:
        self._write_files(Prompts(self._terminal, self._passphrase))
        last = len(self._endpoint.jumps)
        command = [program, "-F", str(config_file(self._folder, last))]
        command += ["-E", str(log_file(self._folder, last)), "-M", "-N", "-f"]
        command += ["-o", f"ControlPath={_control(self._folder)}"]
        command += ["-o", f"ControlPersist={_PERSIST_S}"]
        process = await asyncio.create_subprocess_exec(
            *(*command, "--", self._endpoint.target.named),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._ssh_environment(),
            start_new_session=not self._terminal,  # without a terminal, ssh can't ask
        )
        patience_s = CONNECT_TIMEOUT_S * len(self._endpoint.hops) + _END_S
        try:
            async with asyncio.timeout(patience_s + (_TOKEN_S if self._terminal else 0)):
                assert process.stderr is not None
                said = await read_bounded(process.stderr.read, self._endpoint.target.named)
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return None
        return find_failure(self._logs(), said.decode(errors="replace"))

    def _write_files(self, manners: Prompts) -> None:
        known_hosts_file(self._folder).write_text("".join(self._known_lines()))
        _answer(self._folder).write_text(_ANSWER)
        _answer(self._folder).chmod(0o700)
        for place, hop in enumerate(self._endpoint.hops):
            text = hop_config(
                self._endpoint, place, self._folder, known_hop=self._known_hop(hop), manners=manners
            )
            config_file(self._folder, place).write_text(text)

    def _known_hop(self, hop: Hop) -> KnownHop:
        known_keys, expected = self._pins.known(hop.pin_name), self._pins.expected(hop.pin_name)
        return KnownHop(bool(expected) or known_keys.decides, bool(known_keys.authorities))

    def _known_lines(self) -> Iterator[str]:
        """What is pinned or known of the hops, under the names by which ssh finds it."""
        for hop in self._endpoint.hops:
            for pin in self._pins.of(hop.pin_name):
                self._pins.accept(pin, self._endpoint.describe(hop))
            known_keys = self._pins.known(hop.pin_name)
            name = known_keys.name if known_keys.authorities else hop.pin_name
            expected = {pin.key for pin in self._pins.expected(hop.pin_name)}
            for marker, keys in (
                ("", expected),
                ("@cert-authority ", known_keys.authorities),
                ("@revoked ", known_keys.revoked),
            ):
                yield from (f"{marker}{pin_of(name, key).line}" for key in sorted(keys))

    def _ssh_environment(self) -> dict[str, str]:
        environment = {**_without_passphrase(self._environment), "LC_ALL": "C"}
        if self._passphrase:
            environment[PASSPHRASE_VARIABLE] = self._environment[PASSPHRASE_VARIABLE]
            environment["SSH_ASKPASS"] = str(_answer(self._folder))
            environment["SSH_ASKPASS_REQUIRE"] = "force"
            environment.setdefault("DISPLAY", ":0")  # before 8.4, ssh asked only with a display
        return environment

    def _logs(self) -> list[str]:
        paths = [log_file(self._folder, place) for place in range(len(self._endpoint.hops))]
        return [path.read_text(errors="replace") if path.exists() else "" for path in paths]

    def _take_over_pins(self, *, connected: bool) -> None:
        """Pin the keys that ssh accepted at first use, even if the login failed; those that it was
        given, once it has connected."""
        new_pins = Pins(known_hosts_file(self._folder), self._endpoint.name)
        for hop in self._endpoint.hops:
            name, keys = hop.pin_name, new_pins.of(hop.pin_name)
            if self._pins.of(name) or not keys:
                continue
            if not self._known_hop(hop).decided:
                self._pins.accept(keys[0], self._endpoint.describe(hop))
            elif connected:
                self._pins.replace(name, keys)

    async def _refusal(self, failed: Failure) -> HostError:
        endpoint, hop = self._endpoint, self._endpoint.hops[failed.place]
        if failed.cause == "key_changed":
            return self._pins.changed(
                hop.pin_name,
                endpoint.describe(hop),
                failed.kind or "unnamed",
                failed.fingerprint or "(ssh does not say which)",
            )
        if failed.cause == "no_common_algorithm":
            return no_common_algorithm(endpoint, hop, failed.reason)
        if failed.cause == "unreachable":
            return unreachable(endpoint, hop, failed.reason)
        locked = (await collect_keys(endpoint, self._environment))[hop].locked
        if locked and not self._terminal:
            return key_locked(locked[0], self._environment)
        return authentication_refused(endpoint, hop, [str(path) for path in hop.identities])


async def _hold(folder: Path) -> socket.socket:
    """A connection to the master, which keeps it running; it has sent its greeting.

    Raises:
        OSError: no master runs, or it is ending.
        TimeoutError: it sends no greeting.
    """
    loop = asyncio.get_running_loop()
    held = socket.socket(socket.AF_UNIX)
    held.setblocking(False)
    try:
        async with asyncio.timeout(_END_S):
            await loop.sock_connect(held, str(_control(folder)))
            if not await loop.sock_recv(held, _GREETING_BYTES):
                raise ConnectionResetError("the connection closed at once")
    except BaseException:
        held.close()
        raise
    return held


def _control(folder: Path) -> Path:
    return folder / "c"


def _answer(folder: Path) -> Path:
    return folder / "answer"


def _without_passphrase(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != PASSPHRASE_VARIABLE}


@dataclass(frozen=True, slots=True)
class Failure:
    """`place`: the index of the hop; `kind` and `fingerprint`: of the key that it presented, None
    if ssh did not log them."""

    cause: Cause
    place: int
    reason: str
    kind: str | None = None
    fingerprint: str | None = None


def find_failure(logs: Sequence[str], said: str) -> Failure:
    """The failure in ssh's logs of the hops, in order, and in its standard error `said`.

    The first hop with a failure counts; later ones are consequences.
    """
    for place, log in enumerate(logs):
        for cause, sign in _SIGNS:
            if sign.search(log):
                return _failure(cause, place, log)
        beyond = _BEYOND.search(log)
        if beyond and place + 1 < len(logs):
            return Failure("unreachable", place + 1, beyond[1].strip())
        if _GIVEN_UP.search(log):
            return _failure("unreachable", place, log)
    return _failure("unreachable", len(logs) - 1, logs[-1] or said)


def _failure(cause: Cause, place: int, log: str) -> Failure:
    shown = _CHANGED.search(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("ssh: ") if lines else ""
    return Failure(cause, place, reason, *(shown.groups() if shown else ()))

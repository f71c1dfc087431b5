"""The hosts on record: added, listed, trusted anew, removed. Nothing here starts a training."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.protocol.duration import in_utc
from trainmaster.backends import LOCAL
from trainmaster.backends.hosts import Host, LocalHost
from trainmaster.backends.hosts.connection_check import Connection, check_connection
from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.backends.ssh.endpoint import parse_address, parse_jumps
from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.plan.spec.annotations import NAME_ACCEPTED, NAME_PATTERN
from trainmaster.store.host_record import DEFAULT_ROOT, HostRecord, TransportName
from trainmaster.store.run import Run
from trainmaster.sync.follow import last_pass
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import (
    HostAddedAnswer,
    HostRemovedAnswer,
    HostRow,
    HostsAnswer,
    HostState,
    HostTrustAnswer,
)
from trainmaster.words.errors import HostError, StateError, TrainmasterError, UsageError
from trainmaster.words.paths import Home

CONNECT_S = 20.0
# Words that already mean something where a host's name may stand.
_RESERVED = frozenset({"local", "debug", "kaggle", "operator", "none", "auto", "s3"})
_FOLDER = re.compile(r"~?/[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]")
_AUTHENTICATION = frozenset({"AUTH_FAILED", "KEY_LOCKED", "SHELL_UNUSABLE"})


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How a host is to be reached, besides its address; `offline`: don't connect now."""

    key: str | None = None
    jump: str | None = None
    root: str = DEFAULT_ROOT
    cache: str | None = None
    transport: TransportName = "asyncssh"
    offline: bool = False


async def add_host(
    workspace: Workspace, name: str, address: str, options: HostOptions
) -> HostAddedAnswer:
    """Record a host once it was reached; its key is pinned by that. Nothing is kept otherwise.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`.
        HostError: `HOST_EXISTS`; what keeps it from being reached, unless `offline`.
    """
    record = _record(name, address, options)
    if workspace.control.host(name) is not None:
        workspace.control.put_host(record, time.time(), new=True)  # tells it
    pins = _new_pins(workspace.home, name)
    found = Connection()
    try:
        if not options.offline:
            found = await check_connection(record, pins, within_s=CONNECT_S)
            if found.error is not None and found.error.code != "PYTHON_MISSING":
                raise _not_added(found.error)
        workspace.control.put_host(record, time.time(), new=True)
        _forget_found(workspace.home, name)
        if pins.exists():
            os.replace(pins, workspace.home.pins(name))
    finally:
        _clear(pins)
    return HostAddedAnswer(
        host=name,
        address=_shown(record),
        fingerprint=_target_fingerprint(workspace.home, record),
        checks=found.rows,
        next_step=f"Run `trainmaster hosts check {name}`, then launch with `--host {name}`.",
    )


async def list_hosts(workspace: Workspace) -> HostsAnswer:
    """This machine and all hosts on record, as they were last found; none of them is asked."""
    runs = workspace.control.runs(only_open=True)
    local = HostRecord(LOCAL, "this machine", root=str(workspace.home.local_root))
    rows = [_row(workspace, record, runs) for record in (local, *workspace.control.hosts())]
    return HostsAnswer(hosts=rows)


async def trust_host(workspace: Workspace, name: str) -> HostTrustAnswer:
    """Pin the key that the host shows now, in place of the one that was pinned.

    Raises:
        HostError: `HOST_UNKNOWN`; what keeps it from showing a key.
    """
    record = known_record(workspace, name)
    before = _fingerprints(workspace.home.pins(name), name)
    pins = _new_pins(workspace.home, name)
    try:
        found = await check_connection(record, pins, within_s=CONNECT_S)
        now = _fingerprints(pins, name)
        if found.error is not None and not (now and found.error.code in _AUTHENTICATION):
            raise found.error
        os.replace(pins, workspace.home.pins(name))
    finally:
        _clear(pins)
    return HostTrustAnswer(host=name, pinned=before, now=now, changed=before != now)


async def remove_host(workspace: Workspace, name: str, *, force: bool = False) -> HostRemovedAnswer:
    """Forget a host and its keys; nothing on the machine is touched.

    Raises:
        HostError: `HOST_UNKNOWN`.
        StateError: `RUN_IS_RUNNING`, runs are open on it and `force` was not given.
    """
    known_record(workspace, name)
    left = [run.run_id for run in workspace.control.runs(only_open=True) if run.host == name]
    if left and not force:
        raise StateError(
            "RUN_IS_RUNNING",
            f"{name} has open runs: {', '.join(left)}.",
            "Stop them and wait for their end, or pass --force: they go on, but nobody follows "
            "them until the host is added again under this name.",
        )
    workspace.control.remove_host(name)
    workspace.home.follower_pass(name).unlink(missing_ok=True)
    shutil.rmtree(workspace.home.pins(name).parent, ignore_errors=True)
    again = f"`trainmaster hosts add {name} ADDRESS` finds them again, wherever their root is."
    return HostRemovedAnswer(host=name, abandoned=left, next_step=again if left else None)


def known_record(workspace: Workspace, name: str) -> HostRecord:
    """The record of a host that is reached over SSH.

    Raises:
        HostError: `HOST_UNKNOWN`.
        UsageError: `BAD_ARGUMENT`, the name is this machine's.
    """
    record = workspace.control.host(name)
    if record is None and name in _RESERVED:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name} is no host that was added.",
            "`trainmaster hosts` lists those that were.",
        )
    if record is None:
        workspace.backend(name)  # tells that it is unknown, and how it is added
        raise HostError("HOST_UNKNOWN", f"No host is called {name!r}.", "See `trainmaster hosts`.")
    return record


def open_host(workspace: Workspace, name: str) -> Host:
    """The machine itself, with a connection of its own: whoever opens it disconnects it.

    Raises:
        HostError: `HOST_UNKNOWN`.
    """
    if name == LOCAL:
        return LocalHost(LOCAL, workspace.home.local_root)
    return SshHost(known_record(workspace, name), workspace.home)


def refuse_unusable_name(name: str) -> None:
    """Raises:
    UsageError: `UNSAFE_NAME`, `BAD_ARGUMENT`: it can't be a host's name.
    """
    if not NAME_PATTERN.fullmatch(name) or ".." in name:
        raise UsageError(
            "UNSAFE_NAME",
            f"{name!r} is no name for a host.",
            f"Use {NAME_ACCEPTED}.",
            field="name",
        )
    if name in _RESERVED:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name!r} means something else already.",
            f"Take another name than {', '.join(sorted(_RESERVED))}.",
            field="name",
        )


def _record(name: str, address: str, options: HostOptions) -> HostRecord:
    refuse_unusable_name(name)
    parsed = parse_address(address)
    if options.jump is not None:
        parse_jumps(options.jump)
    for option, folder in (("--root", options.root), ("--cache", options.cache)):
        if folder is not None and not _is_folder(folder):
            raise UsageError(
                "UNSAFE_NAME",
                f"{folder!r} is no folder that can be used.",
                "Name an absolute folder of the host, or one below its user's home: ~/NAME.",
                field=option,
            )
    return HostRecord(
        name=name,
        address=parsed.host,
        user=parsed.user,
        port=parsed.port,
        key=None if options.key is None else _key(options.key),
        jump=options.jump,
        transport=options.transport,
        root=options.root.rstrip("/"),
        cache=None if options.cache is None else options.cache.rstrip("/"),
    )


def _is_folder(text: str) -> bool:
    return bool(_FOLDER.fullmatch(text.rstrip("/"))) and ".." not in text.split("/")


def _key(text: str) -> str:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise UsageError(
            "BAD_ARGUMENT",
            f"There is no private key at {path}.",
            "Give the path of a private key of this machine, not of its .pub file.",
            field="--key",
        )
    if path.suffix == ".pub":
        raise UsageError(
            "BAD_ARGUMENT",
            f"{path} is a public key.",
            "Give the private key that belongs to it.",
            field="--key",
        )
    return str(path)


def _not_added(error: TrainmasterError) -> TrainmasterError:
    told = f"{error.message} The host was not added."
    fix = f"{error.fix} Or note it unseen with --offline."
    return type(error)(error.code, told, fix, error.retryable, error.field)


def _new_pins(home: Home, name: str) -> Path:
    """A file of this process's own, beside the one whose place it may take."""
    pins = home.pins(name)
    return pins.with_name(f".{pins.name}.{secrets.token_hex(8)}")


def _clear(pins: Path) -> None:
    """Take away what is left of a connection that was not kept."""
    for path in (pins, pins.with_name(f".{pins.name}.lock")):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        pins.parent.rmdir()  # only where nothing else lies in it


def _fingerprints(pins: Path, name: str) -> list[str]:
    try:
        return [f"{pin.fingerprint} ({pin.kind}) {pin.hop}" for pin in Pins(pins, name).all()]
    except HostError:
        return ["damaged"]


def _forget_found(home: Home, name: str) -> None:
    """What an earlier host of the name has left."""
    for path in (home.found, home.checked, home.reached, home.pins, home.follower_pass):
        path(name).unlink(missing_ok=True)


def _row(workspace: Workspace, record: HostRecord, runs: list[Run]) -> HostRow:
    is_local = record.name == LOCAL
    open_runs = sum(run.host == record.name for run in runs)
    seen = _last_seen(workspace.home, record.name, followed=open_runs > 0)
    box = workspace.control.boxes.of_host(record.name)
    return HostRow(
        name=record.name,
        address=_shown(record),
        transport=None if is_local else record.transport,
        root=record.root,
        cache=record.cache,
        state=seen.state,
        reason=seen.reason,
        as_of=seen.t,
        gpus=list(seen.gpus) or None,
        open_runs=open_runs,
        fingerprint=None if is_local else _target_fingerprint(workspace.home, record),
        lease_ends_at=None if box is None else in_utc(box.lease_end_t),
        usd_per_h=None if box is None else round(box.usd_per_h, 4),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """How a host was when it was last looked at, by a check or by whoever follows its runs."""

    state: HostState = "unchecked"
    t: float | None = None
    reason: str | None = None
    gpus: tuple[str, ...] = ()


def _last_seen(home: Home, name: str, *, followed: bool) -> _Seen:
    """What the newest of checks, passes over its runs and commands has found."""
    seen, reached_t = _told(home, name, followed=followed), _reached_t(home, name)
    if seen.state != "unreachable" or reached_t <= (seen.t or 0.0):
        return seen
    state: HostState = "failing" if _checked(home, name).state == "failing" else "ok"
    return replace(seen, state=state, t=reached_t, reason=None)


def _reached_t(home: Home, name: str) -> float:
    try:
        return home.reached(name).stat().st_mtime
    except OSError:
        return 0.0


def _told(home: Home, name: str, *, followed: bool) -> _Seen:
    checked = _checked(home, name)
    newest = last_pass(home, name)
    if newest.t <= (checked.t or 0.0):
        return checked
    if newest.error is not None:
        return replace(checked, state="unreachable", t=newest.t, reason=newest.error[1])
    if not followed:  # nobody needed to ask it anything
        return checked
    state: HostState = "failing" if checked.state == "failing" else "ok"
    reason = checked.reason if state == "failing" else None
    return replace(checked, state=state, t=newest.t, reason=reason)


def _checked(home: Home, name: str) -> _Seen:
    try:
        told = json.loads(home.checked(name).read_bytes())
        return _Seen(told["state"], float(told["t"]), told["reason"], tuple(told["gpus"]))
    except (OSError, ValueError, KeyError, TypeError):
        return _Seen()


def _target_fingerprint(home: Home, record: HostRecord) -> str | None:
    try:
        pins = Pins(home.pins(record.name), record.name).all()
    except HostError:
        return None
    return pins[-1].fingerprint if pins else None


def _shown(record: HostRecord) -> str:
    user = f"{record.user}@" if record.user else ""
    host = f"[{record.address}]" if ":" in record.address else record.address
    port = f":{record.port}" if record.port else ""
    return f"{user}{host}{port}"

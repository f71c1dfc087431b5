"""The registry of hosts: add, list, trust a new key, remove."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.hosts import (
    HostAddedAnswer,
    HostRemovedAnswer,
    HostRow,
    HostsAnswer,
    HostState,
    HostTrustAnswer,
)
from trainmaster.backends import LOCAL
from trainmaster.backends.hosts.connection_check import Connection, check_connection
from trainmaster.backends.hosts.ssh import note_reached
from trainmaster.backends.ssh.host_keys import FILE_NAME, Pins
from trainmaster.errors.confirmation import Confirm, Quote, agreed
from trainmaster.errors.errors import HostError, StateError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.machines.host_options import HostOptions, host_record
from trainmaster.machines.open_host import known_record
from trainmaster.runs.overview.volume_use import volume_rows
from trainmaster.store.host_record import (
    DEFAULT_ROOT,
    SLURM_OPTIONS,
    HostRecord,
)
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.workspace import Workspace

CONNECT_S = 20.0
_AUTHENTICATION = frozenset({"AUTH_FAILED", "KEY_LOCKED", "SHELL_UNUSABLE"})


async def add_host(
    workspace: Workspace,
    name: str,
    address: str,
    options: HostOptions,
    *,
    confirm: Confirm = agreed,
) -> HostAddedAnswer:
    """Connect to a host, pin its key, and record it. Nothing is kept if the connection fails.
    `confirm`: who allows an agent to add it, asked before the connection.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
        HostError: `HOST_EXISTS`; the error of the connection, unless `offline`.
    """
    record = host_record(name, address, options)
    if workspace.control.host(name) is not None:
        workspace.control.put_host(record, time.time(), new=True)  # raises `HOST_EXISTS`
    if workspace.policy.bound:
        await confirm(_quote(record))
        record = replace(record, by_agent=True)
    pins = _new_pins(workspace.home, name)
    connection = Connection()
    try:
        if not options.offline:
            connection = await check_connection(record, pins, within_s=CONNECT_S)
            if connection.error is not None and connection.error.code != "PYTHON_MISSING":
                raise _not_added(connection.error)
        workspace.control.put_host(record, time.time(), new=True)
        _remove_state(workspace.home, name)
        if pins.exists():
            os.replace(pins, workspace.home.pins(name))
        if not options.offline and connection.error is None:
            note_reached(workspace.home.reached(name))
    finally:
        _clear(pins)
    return HostAddedAnswer(
        host=name,
        address=record.target,
        fingerprint=_target_fingerprint(workspace.home, record),
        checks=connection.rows,
        next_step=(
            f"Run {command('hosts check', name)}, then launch with {option('--host', name)}."
        ),
    )


async def list_hosts(workspace: Workspace) -> HostsAnswer:
    """This machine and all hosts on record, as last seen; connects to none of them."""
    runs = workspace.control.runs(only_open=True)
    local = HostRecord(LOCAL, "this machine", root=str(workspace.home.local_root))
    rows = [_row(workspace, record, runs) for record in (local, *workspace.control.hosts())]
    return HostsAnswer(hosts=rows, volumes=volume_rows(workspace, only_open=True) or None)


async def trust_host(workspace: Workspace, name: str) -> HostTrustAnswer:
    """Pin the key that the host presents now, in place of the pinned one.

    Raises:
        HostError: `HOST_UNKNOWN`; the error of the connection.
    """
    record = known_record(workspace, name)
    before = _fingerprints(workspace.home.pins(name), name)
    # In a folder of its own: the pins of others at the same address are replaced, too.
    folder = workspace.home.pins(name).parent.with_name(f".{name}.{secrets.token_hex(8)}")
    pins = folder / name / FILE_NAME
    try:
        connection = await check_connection(record, pins, within_s=CONNECT_S)
        now = _fingerprints(pins, name)
        if connection.error is not None and not (now and connection.error.code in _AUTHENTICATION):
            raise connection.error
        _replace_pins(workspace.home.pins(name), pins, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return HostTrustAnswer(host=name, pinned=before, now=now, changed=before != now)


async def remove_host(workspace: Workspace, name: str, *, force: bool = False) -> HostRemovedAnswer:
    """Remove a host and its keys from the registry; changes nothing on the machine.

    Raises:
        HostError: `HOST_UNKNOWN`.
        StateError: `RUN_IS_RUNNING`, it has open runs; not with `force`.
    """
    known_record(workspace, name)
    left = [run.run_id for run in workspace.control.runs(only_open=True) if run.host == name]
    if left and not force:
        raise StateError(
            "RUN_IS_RUNNING",
            f"{name} has open runs: {', '.join(left)}.",
            f"Stop them and wait until they have ended, or pass {option('--force')}: they "
            "continue, but are not followed until the host is added again under this name.",
        )
    workspace.control.remove_host(name)
    workspace.home.follower_pass(name).unlink(missing_ok=True)
    shutil.rmtree(workspace.home.pins(name).parent, ignore_errors=True)
    again = f"{command('hosts add', name, 'ADDRESS')} with the same root finds them again."
    return HostRemovedAnswer(host=name, abandoned=left, next_step=again if left else None)


def job_options(record: HostRecord) -> str | None:
    """The options of a cluster's jobs besides its partition; None where it has none."""
    names = [name for name in SLURM_OPTIONS if name != "partition" and getattr(record, name)]
    return ", ".join(f"{name} {getattr(record, name)}" for name in names) or None


def _quote(record: HostRecord) -> Quote:
    """What a person is asked before an agent adds a host."""
    how = [f", with the key {record.key}"] if record.key else []
    how += [f", through {record.jump}"] if record.jump else []
    how += [f", for runs in {record.root}"] if record.root != DEFAULT_ROOT else []
    text = (
        f"Connect to {record.target}{''.join(how)}, and add it as the host {record.name}, on "
        "which the agent may launch from then on. Secrets go there only after another approval."
    )
    return Quote("add_host", json.dumps(record.to_dict()), shown(text.encode()))


def _not_added(error: TrainmasterError) -> TrainmasterError:
    message = f"{error.message} The host was not added."
    fix = f"{error.fix} Or add it without a connection, in a shell: {option('--offline')}."
    return type(error)(error.code, message, fix, error.retryable, error.field)


def _new_pins(home: Home, name: str) -> Path:
    """A temporary file of this process, next to the file that it may replace."""
    pins = home.pins(name)
    return pins.with_name(f".{pins.name}.{secrets.token_hex(8)}")


def _replace_pins(place: Path, pins: Path, name: str) -> None:
    """Put the new pins of a host into place, and for its hops into the files of other hosts."""
    now = Pins(pins, name).all()
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(pins, place)
    for other in Pins(place, name).beside():
        for hop in {pin.hop for pin in now}:
            wanted = [pin for pin in now if pin.hop == hop]
            with suppress(HostError):  # a damaged file keeps its own host out
                if other.of(hop) not in ([], wanted):
                    other.replace(hop, wanted)


def _clear(pins: Path) -> None:
    """Remove the temporary files of a connection."""
    for path in (pins, pins.with_name(f".{pins.name}.lock")):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        pins.parent.rmdir()  # only if it is empty


def _fingerprints(pins: Path, name: str) -> list[str]:
    try:
        return [f"{pin.fingerprint} ({pin.kind}) {pin.hop}" for pin in Pins(pins, name).all()]
    except HostError:
        return ["damaged"]


def _remove_state(home: Home, name: str) -> None:
    """Remove the state of an earlier host with this name."""
    for path in (home.found, home.checked, home.reached, home.pins, home.follower_pass):
        path(name).unlink(missing_ok=True)


def _row(workspace: Workspace, record: HostRecord, runs: list[Run]) -> HostRow:
    is_local = record.name == LOCAL
    open_runs = sum(run.host == record.name for run in runs)
    seen = _last_seen(workspace.home, record.name, followed=open_runs > 0)
    instance = workspace.control.instances.by_host(record.name)
    return HostRow(
        name=record.name,
        address=record.target,
        transport=None if is_local else record.transport,
        launcher=None if record.launcher == "process" else record.launcher,
        partition=record.partition,
        job_options=job_options(record),
        root=record.root,
        cache=record.cache,
        state=seen.state,
        untrusted_reason=seen.reason,
        as_of=seen.t,
        gpus=list(seen.gpus) or None,
        open_runs=open_runs,
        fingerprint=None if is_local else _target_fingerprint(workspace.home, record),
        lease_ends_at=None if instance is None else in_utc(instance.lease_end_t),
        usd_per_h=None if instance is None else round(instance.usd_per_h, 4),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A host's state at its last check, or when its runs were last followed."""

    state: HostState = "unchecked"
    t: float | None = None
    reason: str | None = None
    gpus: tuple[str, ...] = ()


def _last_seen(home: Home, name: str, *, followed: bool) -> _Seen:
    """From the newest of its checks, follower passes and commands; unchecked is only a host that
    was never reached."""
    seen, reached_t = _from_check_or_pass(home, name, followed=followed), _reached_t(home, name)
    if seen.state == "unchecked" and (reached_t or name == LOCAL):
        return replace(seen, state="ok", t=reached_t or None)
    if seen.state != "unreachable" or reached_t <= (seen.t or 0.0):
        return seen
    state: HostState = "failing" if _checked(home, name).state == "failing" else "ok"
    return replace(seen, state=state, t=reached_t, reason=None)


def _reached_t(home: Home, name: str) -> float:
    try:
        return home.reached(name).stat().st_mtime
    except OSError:
        return 0.0


def _from_check_or_pass(home: Home, name: str, *, followed: bool) -> _Seen:
    checked = _checked(home, name)
    newest = last_pass(home, name)
    if newest.t <= (checked.t or 0.0):
        return checked
    if newest.error is not None:
        return replace(checked, state="unreachable", t=newest.t, reason=newest.error[1])
    if not followed:  # no run needed a connection
        return checked
    state: HostState = "failing" if checked.state == "failing" else "ok"
    reason = checked.reason if state == "failing" else None
    return replace(checked, state=state, t=newest.t, reason=reason)


def _checked(home: Home, name: str) -> _Seen:
    try:
        record = json.loads(home.checked(name).read_bytes())
        return _Seen(record["state"], float(record["t"]), record["reason"], tuple(record["gpus"]))
    except (OSError, ValueError, KeyError, TypeError):
        return _Seen()


def _target_fingerprint(home: Home, record: HostRecord) -> str | None:
    try:
        pins = Pins(home.pins(record.name), record.name).all()
    except HostError:
        return None
    return pins[-1].fingerprint if pins else None

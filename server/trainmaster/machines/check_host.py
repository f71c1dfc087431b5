"""Check everything that a training needs of a host, as one table."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.environment.gpus import gpu_label
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import gib_text, spoken_duration
from trainmaster.answers.checks import CheckRow, failed_by, none_failed, passed, warning
from trainmaster.answers.hosts import HostCheckAnswer
from trainmaster.backends import LOCAL, SLURM
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.connection_check import Connection, check_connection
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.home.paths import Home
from trainmaster.machines.check_cluster import check_cluster, without_login
from trainmaster.machines.host_registry import CONNECT_S
from trainmaster.machines.open_host import known_record, open_host
from trainmaster.machines.recover import count_left
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace

WITHIN_S = 90.0
# Reserved in the given time: for the reply, and for the checks besides PyTorch.
_RESERVE_S = 8.0
_MIN_HOST_S = 10.0
_MAX_SKEW_S = 5.0
# The names of the rows that a host itself makes, besides those of its GPUs.
_OF_RUNTIME = frozenset(
    {
        *("python", "environments", "frameworks", "torch", "gpu", "tmux or screen", "logging out"),
        *("root", "root noexec", "cache", "cache noexec", "permissions"),
        *("cores and memory", "/dev/shm", "containers"),
    }
)
_UNKNOWN = "another check"


@dataclass(slots=True)
class _HostReport:
    """The rows that were checked on the host itself."""

    rows: list[CheckRow] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)


async def check_host(
    workspace: Workspace, name: str, *, within_s: float = WITHIN_S
) -> HostCheckAnswer:
    """Check a host for at most `within_s` seconds, each requirement by itself; starts nothing, and
    leaves nothing behind.

    Raises:
        HostError: `HOST_UNKNOWN`. A host that can't be reached or used has failed rows instead.
    """
    began = time.monotonic()
    connection, record = Connection(command_s=0.0), None
    if name != LOCAL:
        record = known_record(workspace, name)
        pins = workspace.home.pins(name)
        enter_stage(f"connecting to {name}")
        connection = await check_connection(record, pins, within_s=min(CONNECT_S, within_s))
    report = _HostReport()
    if connection.command_s is not None:
        enter_stage(f"checking {name}")
        left_s = max(_MIN_HOST_S, within_s - (time.monotonic() - began))
        report = await _check_on_host(open_host(workspace, name), connection, left_s, record)
        report.rows += await _left_runs(workspace, name)
    checked = {row.name for row in report.rows}
    rows = [*(row for row in connection.rows if row.name not in checked), *report.rows]
    reached = connection.command_s is not None
    next_step = None if reached else _without_host(workspace, name)
    answer = HostCheckAnswer(host=name, ok=none_failed(rows), checks=rows, next_step=next_step)
    _remember(workspace.home, answer, report.gpus, reached=reached)
    return answer


async def _left_runs(workspace: Workspace, name: str) -> list[CheckRow]:
    """A row where runs lie there that are not on record: the home was restored, or is another."""
    try:
        left = await count_left(workspace, name)
    except HostError:
        return []  # the other rows say why
    if not left:
        return []
    remedy = f"{command('hosts recover', name)} records this home's again, and lists the others."
    return [warning("runs", f"{left} not on record", remedy)]


def _without_host(workspace: Workspace, name: str) -> str | None:
    """The advice for the open runs of a host that can't be reached; None where there are none."""
    runs = [run for run, _, _ in workspace.control.open_runs(name)]
    if not runs:
        return None
    others = f" (and {len(runs) - 1} more)" if len(runs) > 1 else ""
    return (
        f"If it is gone for good, {command('resume', runs[0], '--host', 'HOST', '--abandon')} "
        f"continues its run{others} elsewhere, from what is mirrored here."
    )


async def _check_on_host(
    host: Host, connection: Connection, within_s: float, record: HostRecord | None
) -> _HostReport:
    """The rows from the runtime on the host, or from plain commands if it can't run there."""
    try:
        if connection.error is not None:
            return await _by_shell(host, connection)
        try:
            report = await _by_runtime(host, connection, within_s)
            if record is not None and record.launcher == SLURM:
                rows, gpus = await check_cluster(host, record)
                return _HostReport([*without_login(report.rows), *rows], gpus)
            return report
        except HostError as error:
            report = await _by_shell(host, connection)
            report.rows.append(failed_by("runtime", error))
            return report
    except HostError as error:
        return _HostReport([failed_by("connection", error)])
    finally:
        await host.disconnect()


async def _by_runtime(host: Host, connection: Connection, within_s: float) -> _HostReport:
    began = time.monotonic()
    await host.runtime()  # on a host's first use this takes a part of the time
    left_s = max(_MIN_HOST_S, within_s - (time.monotonic() - began))
    failure = Failure(
        f"The check on {host.name} returned no result",
        "Try again; if that fails, run it on the machine by hand.",
        code="ENVIRONMENT_UNUSABLE",
    )
    within = ["--within", f"{max(1.0, left_s - _RESERVE_S):.0f}"]
    arguments = [await host.root(), await host.cache(), *within]
    call = RuntimeCall("check", arguments, failure, left_s)
    return await runtime_call(
        host, call, lambda answer: _report(answer, connection.command_s or 0.0)
    )


def _report(answer: Fields, command_s: float) -> _HostReport:
    rows = [_row(row.values) for row in answer.sections("checks")]
    rows.append(_clock(answer.time("time") - time.time() + command_s / 2))
    return _HostReport(rows, [_gpu(gpu) for gpu in answer.sections("gpus")])


def _row(values: Mapping[str, object]) -> CheckRow:
    """A row as a host reports it, in the host's words but for its name and state."""
    name = str(values["name"])
    is_known = name in _OF_RUNTIME or re.fullmatch(r"gpu \d{1,3}", name)
    return CheckRow.model_validate(
        {
            "name": name if is_known else _UNKNOWN,
            "state": values["state"],
            "untrusted_found": values["found"],
            "untrusted_remedy": values.get("remedy"),
        }
    )


async def _by_shell(host: Host, connection: Connection) -> _HostReport:
    script = (find_assets().runtime / "host" / "answer" / "check_plain.sh").read_bytes()
    root, cache = await host.root(), await host.cache()
    command = ["/bin/sh", "-s", root, cache]
    done = await host.run(command, folder="/", stdin=script, timeout_s=_MIN_HOST_S)
    received = time.time()
    report = _HostReport()
    for line in done.output.splitlines():
        mark, *fields = line.split("\t")
        if mark == "row" and len(fields) == 4 and fields[1] in ("ok", "warn", "fail"):
            name, state, text, remedy = fields
            row = {"name": name, "state": state, "found": text, "remedy": remedy or None}
            report.rows.append(_row(row))
        elif mark == "time" and fields[0].isdigit():
            # Whole seconds: on average half a second has passed.
            skew_s = float(fields[0]) + 0.5 - received + (connection.command_s or 0.0) / 2
            report.rows.append(_clock(skew_s))
    return report


def _clock(skew_s: float) -> CheckRow:
    if abs(skew_s) <= _MAX_SKEW_S:
        return passed("clock", f"{spoken_duration(abs(skew_s))} off this machine's")
    direction = "ahead of" if skew_s > 0 else "behind"
    skew = f"{spoken_duration(abs(skew_s))} {direction} this machine's"
    remedy = "Set both clocks by NTP (`timedatectl set-ntp true`): otherwise times are wrong."
    return warning("clock", skew, remedy)


def _gpu(gpu: Fields) -> str:
    memory_gib = gpu.find_number("memory_gib")
    size = "" if memory_gib is None else f" ({gib_text(memory_gib)})"
    return f"{gpu_label(gpu.text('name'))}{size}"


def _remember(home: Home, answer: HostCheckAnswer, gpus: list[str], *, reached: bool) -> None:
    """Store the result for `hosts`."""
    state = "ok" if answer.ok else "failing" if reached else "unreachable"
    failed = [
        row.all_found or f"`{row.name}` fails: see {command('hosts check', answer.host)}"
        for row in answer.checks
        if row.state == "fail"
    ]
    record = {
        "t": time.time(),
        "state": state,
        "reason": failed[0] if failed else None,
        "gpus": gpus,
    }
    path = home.checked(answer.host)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(record).encode())

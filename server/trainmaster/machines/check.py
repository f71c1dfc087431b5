"""What stands between a host and a training, in one table."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.durable import write_atomic
from trainmaster.backends import LOCAL
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.connection_check import Connection, check_connection
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.machines.registry import CONNECT_S, known_record, open_host
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import HostCheckAnswer, HostCheckRow
from trainmaster.words.assets import find_assets
from trainmaster.words.errors import HostError
from trainmaster.words.paths import Home

WITHIN_S = 90.0
# Of the time that is given: for the answer's way, and for what is looked at besides PyTorch.
_REST_S = 8.0
_LEAST_BOX_S = 10.0
_MOST_SKEW_S = 5.0


@dataclass(slots=True)
class _Box:
    """What the machine says of itself."""

    rows: list[HostCheckRow] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)


async def check_host(
    workspace: Workspace, name: str, *, within_s: float = WITHIN_S
) -> HostCheckAnswer:
    """Check everything that a training needs of a host, each thing by itself; starts nothing, and
    leaves nothing behind.

    Tells what can be seen in `within_s` seconds.

    Raises:
        HostError: `HOST_UNKNOWN`. That a host can't be reached or used is told by a row.
    """
    began = time.monotonic()
    found = Connection(command_s=0.0)
    if name != LOCAL:
        record = known_record(workspace, name)
        pins = workspace.home.pins(name)
        found = await check_connection(record, pins, within_s=min(CONNECT_S, within_s))
    box = _Box()
    if found.command_s is not None:
        left_s = max(_LEAST_BOX_S, within_s - (time.monotonic() - began))
        box = await _look_at_box(open_host(workspace, name), found, left_s)
    told = {row.name for row in box.rows}
    rows = [*(row for row in found.rows if row.name not in told), *box.rows]
    answer = HostCheckAnswer(host=name, ok=all(row.state != "fail" for row in rows), checks=rows)
    reached = found.command_s is not None
    _remember(workspace.home, answer, box.gpus, reached=reached)
    return answer


async def _look_at_box(host: Host, found: Connection, within_s: float) -> _Box:
    """The box's own rows; where our runtime can't run there, what plain commands tell."""
    try:
        if found.error is not None:
            return await _plain(host, found)
        try:
            return await _whole(host, found, within_s)
        except HostError as error:
            box = await _plain(host, found)
            box.rows.append(_failed("runtime", error))
            return box
    except HostError as error:
        return _Box([_failed("connection", error)])
    finally:
        await host.disconnect()


async def _whole(host: Host, found: Connection, within_s: float) -> _Box:
    began = time.monotonic()
    await host.runtime()  # on a host's first use this takes a part of the time
    left_s = max(_LEAST_BOX_S, within_s - (time.monotonic() - began))
    failure = Failure(
        f"The check on {host.name} gave no answer",
        "Try again; where it stays so, run it on the machine by hand.",
        code="ENVIRONMENT_UNUSABLE",
    )
    within = ["--within", f"{max(1.0, left_s - _REST_S):.0f}"]
    arguments = [await host.root(), await host.cache(), *within]
    call = RuntimeCall("check", arguments, failure, left_s)
    return await runtime_call(host, call, lambda answer: _box(answer, found.command_s or 0.0))


def _box(answer: Fields, command_s: float) -> _Box:
    rows = [HostCheckRow.model_validate(row.values) for row in answer.sections("checks")]
    rows.append(_clock(answer.time("time") - time.time() + command_s / 2))
    return _Box(rows, [_gpu(gpu) for gpu in answer.sections("gpus")])


async def _plain(host: Host, found: Connection) -> _Box:
    script = (find_assets().runtime / "box" / "answer" / "check_plain.sh").read_bytes()
    root, cache = await host.root(), await host.cache()
    command = ["/bin/sh", "-s", root, cache]
    done = await host.run(command, folder="/", stdin=script, timeout_s=_LEAST_BOX_S)
    received = time.time()
    box = _Box()
    for line in done.output.splitlines():
        mark, *fields = line.split("\t")
        if mark == "row" and len(fields) == 4 and fields[1] in ("ok", "warn", "fail"):
            name, state, told, remedy = fields
            row = {"name": name, "state": state, "found": told, "remedy": remedy or None}
            box.rows.append(HostCheckRow.model_validate(row))
        elif mark == "time" and fields[0].isdigit():
            # Whole seconds: on average the clock is half of one further.
            skew_s = float(fields[0]) + 0.5 - received + (found.command_s or 0.0) / 2
            box.rows.append(_clock(skew_s))
    return box


def _clock(skew_s: float) -> HostCheckRow:
    if abs(skew_s) <= _MOST_SKEW_S:
        return HostCheckRow(
            name="clock", state="ok", found=f"{abs(skew_s):.1f} s off this machine's"
        )
    direction = "ahead of" if skew_s > 0 else "behind"
    return HostCheckRow(
        name="clock",
        state="warn",
        found=f"{abs(skew_s):,.0f} s {direction} this machine's",
        remedy="Set both clocks by NTP (`timedatectl set-ntp true`): ages and times are off so.",
    )


def _gpu(gpu: Fields) -> str:
    memory_gib = gpu.find_number("memory_gib")
    size = "" if memory_gib is None else f" ({memory_gib:.0f} GiB)"
    return f"{gpu.text('name')}{size}"


def _failed(name: str, error: HostError) -> HostCheckRow:
    return HostCheckRow(name=name, state="fail", found=error.message, remedy=error.fix)


def _remember(home: Home, answer: HostCheckAnswer, gpus: list[str], *, reached: bool) -> None:
    """For `hosts`: how the host was, and what it has."""
    state = "ok" if answer.ok else "failing" if reached else "unreachable"
    failed = [row.found for row in answer.checks if row.state == "fail"]
    told = {
        "t": time.time(),
        "state": state,
        "reason": failed[0] if failed else None,
        "gpus": gpus,
    }
    path = home.checked(answer.host)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(told).encode())

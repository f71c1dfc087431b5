"""Do what is due for every run and rented instance, once. A timer calls it.

Rented instances come first, and each part is a process of its own: a run whose data makes its
process hang, crash or run out of memory does not keep a lease from its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from trainer_runtime.core.alerts.alert import alert_id
from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.protocol.alert_record import Message
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.alerts.destinations import destinations
from trainmaster.alerts.send import send_due
from trainmaster.answers.keeper import InstanceTickRow, TickAnswer
from trainmaster.errors.advice import Face, for_face, shown_by
from trainmaster.errors.error_codes import CODES, Reach
from trainmaster.errors.errors import StateError
from trainmaster.home.own_program import command_line
from trainmaster.home.paths import HOME_VARIABLE, Home
from trainmaster.keeper.call import parse_every
from trainmaster.keeper.parts import Part
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.store.detached import SAFELY
from trainmaster.store.failures import Failures
from trainmaster.store.reserve import give_up_reserve, keep_reserve
from trainmaster.sync.keeper_state import record_failed, ticking
from trainmaster.sync.workspace import Workspace

PART_COMMAND = "tick-part"
_MOST_OUTPUT_BYTES = 8 << 20
_ALERT = "keeper-failed"
# A host that can't be reached is not a failure of the keeper: alerts on lost runs report it.
_CODES = frozenset(
    {
        "INTERNAL",
        "DATABASE_DAMAGED",
        "DISK_FULL",
        "ROOT_NOT_WRITABLE",
        "HOME_IS_NEWER",
        "HOME_OF_OTHER_VERSION",
    }
)
_PARTS = frozenset({"instances", "runs"})
_FACT = "keeper_failures"
_MOST_NAMED = 5
# A tick sends in its own process: the timer may end its child processes.
_SENDS_S = 20.0
# A cluster's controller may be silent while its login node, the host, answers.
_UNANSWERED = {name for name, code in CODES.items() if code.reach is Reach.NO_ANSWER}
_PASSING = _UNANSWERED - {"TIMEOUT"} | {"SLURM_UNREACHABLE"}
# The bounds of the parts, together below systemd's for the whole (`systemd.LONGEST_S`).
_INSTANCES_S = 400.0
_RUNS_S = 1000.0
# Instances are maintained again while the runs' part takes long.
_INSTANCES_EVERY_S = 240.0


async def tick(workspace: Workspace, *, every: str | None = None) -> TickAnswer:
    """Do what is due for rented instances, then advance every run once of which anything may be
    due, and read what its host has to say.

    A failure stops nothing else; it is on record for `keeper status` and `doctor`, and destinations
    of alerts are notified of a part that failed. Where another tick is running, only instances are
    maintained. `every`: the interval of the timer that calls this, so that a missing call can be
    reported.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    give_up_reserve(workspace.home)
    every_s = None if every is None else parse_every(every) * 60.0
    with ticking(workspace.home, every_s) as failed:
        instances = await _instances(workspace)
        if failed is None:
            record_failed(workspace.home, instances.failed or {})
            note = "Another tick is running; nothing was done for runs."
            return instances.model_copy(update={"note": note})
        answer = await _runs(workspace, instances, by_timer=every is not None)
        failures = Failures(workspace.home)
        with failures.caught("alerts"):
            fire_tick_failures(workspace, answer.failed or {}, time.time())
            await send_due(workspace, stays_s=_SENDS_S)
        failed |= {**(answer.failed or {}), **failures.texts}
        keep_reserve(workspace.home)
    return answer.model_copy(update={"failed": failed or None})


def has_failed(answer: TickAnswer) -> bool:
    """Whether a tick left undone what it could have done: not where a host or provider gave no
    answer, which the next tick asks again."""
    codes = {text.partition(":")[0] for text in (answer.failed or {}).values()}
    return any(code not in _PASSING for code in codes)


async def _instances(workspace: Workspace) -> TickAnswer:
    if not has_rentals(workspace, os.environ):
        return TickAnswer(runs=[])
    return await run_part(workspace.home, "instances", _INSTANCES_S)


async def _runs(workspace: Workspace, instances: TickAnswer, *, by_timer: bool) -> TickAnswer:
    """The part of the runs, joined with what was done for instances before and meanwhile."""
    runs = asyncio.create_task(run_part(workspace.home, "runs", _RUNS_S, by_timer=by_timer))
    try:
        while not (await asyncio.wait({runs}, timeout=_INSTANCES_EVERY_S))[0]:
            instances = _joined(instances, await _instances(workspace))
        return _joined(instances, runs.result())
    finally:
        runs.cancel()


def _joined(first: TickAnswer, second: TickAnswer) -> TickAnswer:
    """Both answers in one; of an instance, what was done both times."""
    did: dict[str, list[str]] = {}
    for row in (*(first.instances or ()), *(second.instances or ())):
        did.setdefault(row.instance, []).extend(row.did)
    rows = [InstanceTickRow(instance=name, did=list(dict.fromkeys(did[name]))) for name in did]
    return TickAnswer(
        runs=[*first.runs, *second.runs],
        instances=rows or None,
        failed={**(first.failed or {}), **(second.failed or {})} or None,
    )


def fire_tick_failures(workspace: Workspace, failed: Mapping[str, str], now: float) -> None:
    """Record a message where something fails that did not fail in the last tick; sends nothing.

    `failed`: error messages by run, instance or part. Only names and codes are passed on.
    """
    named = {name: why.partition(":")[0] for name, why in failed.items()}
    pressing = {name: code for name, code in named.items() if name in _PARTS or code in _CODES}
    facts = workspace.control.facts
    before = set((facts.get(_FACT) or "").split())
    if set(pressing) == before:
        return
    facts.put(_FACT, " ".join(sorted(pressing)))
    if not set(pressing) - before:
        return
    try:
        by_name = destinations(workspace.home)
    except StateError:
        return  # unreadable settings; `doctor` reports them
    listed = ", ".join(f"{name} ({code})" for name, code in sorted(pressing.items())[:_MOST_NAMED])
    with shown_by(Face(command_line(os.environ))):  # of a shell that isn't the keeper's
        shown = for_face(command("keeper status"))
    text = f"The keeper's tick failed: {listed}. See, on this machine: {shown}"
    for to, destination in by_name.items():
        if destination.defaults:
            message_id = alert_id(_ALERT, to, str(now))
            message = Message(message_id, "", "", _ALERT, "critical", "", 0, text, round(now, 3))
            workspace.control.alerts.fire(message, to, now)


async def run_part(
    home: Home, part: Part, within_s: float, *, by_timer: bool = False
) -> TickAnswer:
    """The answer of the part; `by_timer`: as `tick_runs` has it. A process that hangs, crashes or
    answers nonsense is ended, and named in `failed` under the part's name; never an error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *SAFELY,
        "-m",
        "trainmaster",
        PART_COMMAND,
        part,
        *(["--by-timer"] if by_timer else []),
        "--json",
        env={**os.environ, HOME_VARIABLE: str(home.root)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        limit=_MOST_OUTPUT_BYTES,
    )
    try:
        async with asyncio.timeout(within_s):
            output = await _output(process)
            code = await process.wait()
    except TimeoutError:
        return _failed(
            part, f"TIMEOUT: it did not end within {spoken_duration(within_s)} and was killed"
        )
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return _answer(part, output, code)


async def _output(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    parts, size = [], 0
    while size <= _MOST_OUTPUT_BYTES and (data := await process.stdout.read(64 << 10)):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _answer(part: Part, output: bytes, code: int) -> TickAnswer:
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return _failed(part, f"INTERNAL: its process was ended by {name}")
    try:
        if code == 0:
            return TickAnswer.model_validate_json(output)
        error = decode_fields(output, "the answer").section("error")
        return _failed(part, f"{error.text('code')}: {error.text('message')}")
    except (DecodingError, ValueError):
        return _failed(part, f"INTERNAL: its process ended with {code} and no answer")


def _failed(part: Part, why: str) -> TickAnswer:
    return TickAnswer(runs=[], failed={part: why})

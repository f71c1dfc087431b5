"""Runs a part of a tick as a process, within bounds of time and output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.answers.keeper import TickAnswer
from trainmaster.home.paths import HOME_VARIABLE, Home
from trainmaster.keeper.parts import Part
from trainmaster.store.detached import SAFELY

PART_COMMAND = "tick-part"
_MOST_OUTPUT_BYTES = 8 << 20


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

"""Traces the memory of a planned training's own script, by a bounded process of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.config.objectives import CAUSAL
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.errors import PlanError
from trainmaster.home.assets import find_assets
from trainmaster.plan import Plan
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.script import training_script
from trainmaster.store.detached import SAFELY

_WITHIN_S = 300
_GRACE_S = 10
_MODULE = "trainer_runtime.train.trace"
# Each plan that a trace leads to computes otherwise: fewer at a time, or other ways to share.
_MOST_TRACES = 6
_LONGEST_REASON = 300
_WITHOUT = f"without {option('--trace')}: the formulas estimate the memory."


async def traced_plan(plan_by: Callable[[MemoryTrace | None], Plan]) -> Plan:
    """The plan whose memory is that of a traced step; `plan_by` plans by a trace, or by none.

    Raises:
        PlanError: `NOT_TRACED`, PyTorch is not here, or a step can't be computed without weights,
            data or a GPU; `DOES_NOT_FIT`.
    """
    made = plan_by(None)
    for _ in range(_MOST_TRACES):
        trace = await _trace(made.config)
        made = plan_by(trace)
        if made.estimates.memory_source is not None:
            return made
    raise not_traced("each traced step led to another plan", "Set batch.micro_batch, or plan")


def not_traced(reason: str, remedy: str | None = None) -> PlanError:
    """That a step can't be traced, and why."""
    fix = f"{remedy or 'Plan'} {_WITHOUT}"
    return PlanError("NOT_TRACED", f"The step can't be traced: {reason}.", fix, field="--trace")


async def _trace(config: ConfigDocument) -> MemoryTrace:
    _refuse_untraceable(config)
    if find_spec("torch") is None:
        raise not_traced(
            f"{sys.executable} has no PyTorch",
            "Run `make install`, or Trainmaster on a host that has PyTorch; or plan",
        )
    enter_stage("tracing a step")
    with tempfile.TemporaryDirectory(prefix="trainmaster-trace-") as folder:
        described = {**config, "run_id": "trace"}
        Path(folder, "config.json").write_text(json.dumps(described))
        Path(folder, "train.py").write_text(training_script(described, find_assets()))
        code, output, errors = await _run(folder)
    if code:
        lines = errors.strip().splitlines()
        reason = lines[-1] if lines and code > 0 else f"no answer within {_WITHIN_S} s"
        raise not_traced(cleaned(reason, _LONGEST_REASON))
    return MemoryTrace.of(decode_fields(output.strip().rpartition(b"\n")[2], "the trace"))


def _refuse_untraceable(config: ConfigDocument) -> None:
    framework, model = config["framework"], config["model"]
    if config.get("method") != "pretrain" or model.get("path") or model.get("hub"):
        raise not_traced(
            "the model is made from existing weights, and their configuration lies with them"
        )
    if (objective := config.get("objective", CAUSAL)) != CAUSAL:
        raise not_traced(f"a step of `objective` {objective} is counted by its formulas alone")
    if not FRAMEWORKS[framework].can_trace:
        raise not_traced(f"the steps of `framework` {framework} are its own")


async def _run(folder: str) -> tuple[int, bytes, str]:
    """The process's exit code and output; it does not survive."""
    runtime = str(find_assets().runtime.parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *SAFELY, "-m", _MODULE, folder, str(_WITHIN_S)),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": runtime, "CUDA_VISIBLE_DEVICES": ""},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_WITHIN_S + _GRACE_S):
            output, errors = await process.communicate()
    except TimeoutError:
        return -1, b"", ""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, output, errors.decode(errors="replace")

"""Findings in the journal of an ended run, as its host would have written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.core.journal_records import EventBody

from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.lines import complete_lines, decode, encode
from trainmaster.runs.upkeep.maintain import until_closed
from trainmaster.sync.replay import replay
from trainmaster.sync.workspace import Workspace

HALVED = {
    "id": "halve_micro_batch",
    "set": {"batch.micro_batch": 4, "batch.accumulation": 2},
    "expected": {"batch.micro_batch": 8, "batch.accumulation": 1},
    "from": "latest",
    "skip": None,
    "keeps_batch": True,
    "why": "Fewer sequences at a time need less memory.",
}


REWINDS = {
    **HALVED,
    "id": "rewind_skip_data",
    "set": {},
    "expected": {},
    "from": 20,
    "skip": {"at_step": 20, "sequences": 168},
}
HALVES_LR = {
    **REWINDS,
    "id": "rewind_halve_lr",
    "set": {"optimizer.lr": 0.0005},
    "expected": {"optimizer.lr": 0.001},
    "skip": None,
}


def finding(
    id: str, code: str = "cuda_oom", severity: str = "critical", attempt: int = 1, **fields: Any
) -> EventBody:
    """The journal's word of a finding, by default of the first attempt."""
    planted = {
        "id": id,
        "code": code,
        "severity": severity,
        "confidence": 0.9,
        "step": 41,
        "evidence": ["CUDA out of memory"],
        "explanation": "The GPU's memory is exhausted.",
        "patches": [],
        "advice": ["Check which processes use the GPU's memory (nvidia-smi)."],
        "led_to": [],
        **fields,
    }
    return "finding", {"attempt": attempt, "finding": planted}


async def plant(workspace: Workspace, run_id: str, *planted: EventBody) -> None:
    """Add to an ended run's journal, here and on its host, and read it again."""
    await until_closed(workspace, run_id, 60.0)  # or its host would write on at the same time
    run = workspace.control.run(run_id)
    mirror = workspace.mirror.of(run_id, run.placement)
    whole, _ = complete_lines(mirror.path(JOURNAL).read_bytes())
    last = decode(whole[-1])
    lines = b"".join(
        encode(last.seq + n, last.t + n / 1000, kind, fields)
        for n, (kind, fields) in enumerate(planted, 1)
    )
    for path in (mirror.path(JOURNAL), Path(workspace.control.folder(run)) / JOURNAL):
        with path.open("ab") as file:
            file.write(lines)
    await replay(workspace)

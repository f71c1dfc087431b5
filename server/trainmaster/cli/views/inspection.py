"""What people see of an inspection."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import number_text, share_text, spoken_duration
from trainmaster.answers.inspect import InspectionAnswer, RanksSeen
from trainmaster.cli.views.blocks import Block, Grid, view

_MOST_PIDS = 8
_STATES = {
    "R": "computing",
    "S": "waiting",
    "D": "stuck in a disk or driver",
    "T": "stopped",
    "t": "stopped by a debugger",
    "I": "idle",
}


@view.register
def _(answer: InspectionAnswer) -> list[Block]:
    sure = f" ({share_text(answer.confidence)} sure)" if answer.confidence else ""
    return [
        f"{answer.run_id}, attempt {answer.attempt}: {answer.verdict}{sure}",
        answer.why,
        *_pace(answer),
        *(block for ranks in answer.ranks for block in _ranks(ranks)),
        *_gpus(answer),
        *(f"Do: {advice}" for advice in answer.advice),
        *([f"All stacks: {answer.stacks_file}"] if answer.stacks_file else []),
        *([f"Next: {answer.next_step}"] if answer.next_step else []),
    ]


def _pace(answer: InspectionAnswer) -> list[Block]:
    parts = [] if answer.step is None else [f"Last step {answer.step}"]
    if answer.silent_s is not None:
        parts.append(f"{spoken_duration(answer.silent_s)} ago")
    if answer.usual_step_s is not None:
        parts.append(f"usually one in {number_text(answer.usual_step_s)} s")
    return [", ".join(parts)] if parts else []


def _ranks(seen: RanksSeen) -> list[Block]:
    who = f"Rank {seen.ranks[0]}" if len(seen.ranks) == 1 else f"Ranks {_spans(seen.ranks)}"
    who += _in_brackets(seen.pids)
    step = "" if seen.step is None else f", step {seen.step}"
    state = _STATES.get(seen.state, seen.state)
    head = f"{who}{step}: at {seen.at}, {state}, {share_text(seen.cpu_share)} of a core"
    worker = "worker" if seen.workers == 1 else "workers"
    workers = f"; {seen.workers} {worker}{_in_brackets(seen.worker_pids)}" if seen.workers else ""
    return [
        head + workers,
        *(f"    {line}" for line in seen.lines),
        *(f"    in the kernel: {line}" for line in seen.blocked or ()),
        *(f"    a worker: {line}" for line in seen.worker_lines or ()),
    ]


def _gpus(answer: InspectionAnswer) -> list[Block]:
    if not answer.gpus:
        return []
    columns = list(answer.gpus)
    rows = [
        ["-" if cell is None else number_text(cell) for cell in row]
        for row in zip(*answer.gpus.values(), strict=True)
    ]
    return [Grid(["GPU" if name == "index" else name for name in columns], rows)]


def _in_brackets(pids: Sequence[int] | None) -> str:
    if not pids:
        return ""
    return f" (pid {', '.join(map(str, pids[:_MOST_PIDS]))}{', …' if pids[_MOST_PIDS:] else ''})"


def _spans(numbers: list[int]) -> str:
    """`0-3, 6` of 0, 1, 2, 3, 6."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)

"""How many tokens the answers of tools take: typical ones, of a home with runs, and the largest."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    evaluation,
    lines,
    metric,
    saved,
    started,
    state,
)
from support.mcp.mcp_client import connected
from support.mcp.tokens import tokens_of
from support.runs.planted_runs import HALVED, finding

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.base import Answer, WholeAnswer
from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.workspace import Workspace

# Clients cut or refuse answers of more: https://code.claude.com/docs/en/mcp
LARGEST = 25_000
_RUNS = 20
_STEPS = 1000
_KEYS = ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s")


class Case(NamedTuple):
    """A call of a tool, and the tokens that its answer may take. Without `arguments` the answer is
    an example: each field has a value, each list so many `entries`."""

    tool: str
    shown: str
    limit: int
    arguments: dict[str, Any] | None
    entries: int = 0

    @property
    def key(self) -> str:
        return f"{self.tool}: {self.shown}"


def typical(workspace: Workspace, folder: Path) -> list[Case]:
    """The calls whose answers are measured. Plants the runs that they are about, and writes a log
    and a corpus into `folder`."""
    runs = [_plant(workspace, number) for number in range(_RUNS)]
    log, corpus = folder / "train.log", folder / "corpus.txt"
    log.write_text("".join(f"step {n} loss {4 - n / 999:.4f} lr 0.0003\n" for n in range(3000)))
    corpus.write_text("Some text to train on. " * 5000)
    small = _SPEC.format(corpus=corpus)
    one, failed = {"run_id": runs[1]}, {"run_id": runs[0]}
    compared = {"run_id": [f"gpt-lr{n}" for n in range(1, 9)], "key": list(_KEYS)}
    return [
        Case("overview", "20 runs", 300, {}),
        Case("list_runs", "20 runs", 1600, {}),
        Case("get_run", "a running one", 300, one),
        Case("get_run", "a failed one", 300, failed),
        Case("get_run", "with `detail`", 600, {**failed, "detail": True}),
        Case("wait_for_event", "after a time-out", 250, {**one, "timeout_s": 0.1}),
        Case("diagnose", "one finding with a patch", 450, failed),
        Case("query_metrics", "one run", 250, one),
        Case("query_metrics", "one metric", 250, {**one, "key": "loss"}),
        Case("query_metrics", "8 runs, 5 metrics", 250, compared),
        Case("query_metrics", "a log file", 250, {"run_id": str(log)}),
        Case("query_metrics", "20 runs ranked", 400, {}),
        Case("query_metrics", "100 points", 2600, {**one, "key": "loss", "points": 100}),
        Case("tail_log", "a run", 1200, one),
        Case("tail_log", "a log file", 1200, {"run_id": str(log)}),
        Case("list_checkpoints", "3 checkpoints", 400, failed),
        Case("plan_run", "a small model", 600, {"spec": small}),
        Case("plan_run", "with `detail`", 900, {"spec": small, "detail": True}),
        Case("plan_run", "a framework's fields", 1700, {"spec": "framework: trl"}),
        Case("plan_run", "data alone", 400, {"spec": f"data: {corpus}"}),
        Case("list_hosts", "none added", 150, {}),
        Case("costs", "nothing rented", 40, {}),
        Case("render", "a small model", 250, {"spec": small, "folder": "shown"}),
        Case("export", "a small model", 300, {"spec": small, "folder": "other", "to": "slurm"}),
        Case("launch", "a small model", 250, {"spec": small, "idempotency_key": "once"}),
        Case("stop", "a running one", 150, {"run_id": "my-gpt"}),
        *(Case(tool, f"{n} entries a list", limit, None, n) for tool, limit, n in _EXAMPLES),
    ]


async def measured(environment: dict[str, str], cases: list[Case], folder: Path) -> dict[str, int]:
    """By tool and what it was asked, the tokens of its answer. A run's host can't be reached.
    `folder`: that of home and files."""
    found = {}
    async with connected(environment) as client:
        for case in cases:
            if case.arguments is None:
                found[case.key] = tokens_of(_example(case.tool, case.entries))
                continue
            result = await client.call_tool(case.tool, case.arguments)
            assert not result.is_error, (case, result.content)
            found[case.key] = tokens_of(result.structured_content, folder)
    return found


def largest() -> Iterator[tuple[str, int]]:
    """By tool, the tokens of the largest answer: more entries in each list and map, and more
    text, than fit."""
    for definitions in TOOLSETS.values():
        for definition in definitions:
            kind = answer_type(definition.function)
            yield definition.name, tokens_of(_filled(kind, _FULL).model_dump())


def _example(tool: str, entries: int) -> dict[str, Any]:
    functions = {one.name: one.function for tools in TOOLSETS.values() for one in tools}
    size = _Size((entries, entries, 2, 1), "Qwen3-8B at step 4100")
    shown: dict[str, Any] = _filled(answer_type(functions[tool]), size).model_dump()
    return shown


def answer_type(function: Callable[..., Any]) -> type[WholeAnswer]:
    """The model of a tool's answer."""
    returned = get_type_hints(function, include_extras=True)["return"]
    kinds = [returned, *get_args(returned)]
    return next(one for one in kinds if isinstance(one, type) and issubclass(one, WholeAnswer))


_SPEC = """\
name: my-gpt
framework: nanogpt
model: {{n_layer: 4, n_head: 4, d_model: 128}}
data: {{sources: [{{path: {corpus}}}], seq_len: 128}}
batch: {{tokens: 8192}}
steps: 200
host: debug
"""


def _plant(workspace: Workspace, number: int) -> str:
    """A run: the first has failed, every fifth is completed, others are running."""
    letters = f"abc{number:03d}".translate(str.maketrans("01", "xy"))
    name = f"gpt-lr{number}"
    run_id = f"{name}-{letters}"
    config = {"name": name, "framework": "nanogpt", "method": "pretrain", "steps": _STEPS}
    run = Run(run_id, name, time.time(), "nowhere", "", config, {}, {}, closed=True)
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/x", None)
    mirror = workspace.mirror.of(run_id, 1)
    first_t = time.time() - 240.0
    mirror.append("attempts/1/events.jsonl", b"".join(lines(_steps(number), first_t=first_t)))
    mirror.append("supervisor.jsonl", b"".join(lines(_journal(number), first_t=first_t)))
    log = "".join(f"iter {n}: loss {3 - n / 500:.4f}, time 132.51ms\n" for n in range(240))
    mirror.append("attempts/1/train.log", log.encode())
    ingest_placement(workspace.metrics, mirror, run_id, 1)
    return run_id


def _steps(number: int) -> list[EventBody]:
    steps = [
        metric(
            n,
            3.2 - n / 400 + number / 97,
            lr=0.0003,
            grad_norm=0.8123 + number / 61,
            tokens_per_s=182345.0 - 1234 * number,
        )
        for n in range(1, 240)
    ]
    evaluations = [evaluation(n, 3.3 - n / 400 + number / 97) for n in (80, 160, 239)]
    kept = [saved(n, 3.3 - n / 400) for n in (80, 160, 239)]
    return [started(0, _STEPS), *steps, *evaluations, *kept]


def _journal(number: int) -> list[EventBody]:
    heartbeats = [("sample", {"values": {"gpu_util": 97.0}})] * 237
    running = [attempt_starting(1), state("preparing"), state("running"), *heartbeats]
    if number == 0:
        hit = finding("0a0a0a0a", patches=[HALVED])
        return [*running, hit, attempt_ended(1, "crashed"), state("failed", reason="crashed")]
    if number % 5 == 0:
        return [*running, attempt_ended(1, "completed"), state("completed", reason="completed")]
    return running


# Tools whose calls take a host, a provider or a user, with a limit and entries.
_EXAMPLES = (
    ("plot_metrics", 250, 3),
    ("list_offers", 2600, 20),
    ("inspect_run", 850, 3),
    ("sample_run", 300, 3),
    ("attach", 350, 3),
    ("adopt", 700, 3),
    ("resume", 350, 3),
    ("fetch_files", 250, 3),
    ("clean_run", 150, 3),
    ("add_host", 500, 5),
    ("create_alert", 250, 3),
    ("provision", 200, 3),
    ("release", 150, 3),
)


class _Size(NamedTuple):
    """Entries of a list or map, by its depth, and the text of each string."""

    entries: tuple[int, ...]
    text: str


_FULL = _Size(
    (150, 8, 4, 2, 1),
    "The loss rose from 2.61 to 9.04 at step 4100 and did not come back within 200 steps. " * 5,
)


def _filled(kind: type[Answer], size: _Size, depth: int = 0) -> Any:
    """An answer with a value in every field."""
    hints = get_type_hints(kind)
    given = {
        field.alias or name: _value(hints[name], size, depth)
        for name, field in kind.model_fields.items()
        if name != "shortened"
    }
    return kind.model_validate(given)


def _value(annotation: Any, size: _Size, depth: int) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _value(next(one for one in arguments if one is not type(None)), size, depth)
    if origin is Literal:
        return arguments[-1]
    entries = size.entries[min(depth, len(size.entries) - 1)]
    if origin is list:
        return [_value(arguments[0], size, depth + 1)] * entries
    if origin is dict:
        item = _value(arguments[1], size, depth + 1)
        return {f"key_{number}": item for number in range(entries)}
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        return _filled(annotation, size, depth).model_copy()
    return {str: size.text, int: 41250, float: 2.6125, bool: True}.get(annotation, size.text)

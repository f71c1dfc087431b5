"""What every framework keeps to: it is planned, rendered, refused where it can't, killed, resumed
exactly and completed, and answers alike.

A framework has a row in `ROWS`; docs/extending.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.runs.light_run import light_spec, standing
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    kill,
    processes_of,
    small_spec,
    standing_after,
    wait_until,
)
from support.session.tiers import at_length, by_engines

from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainmaster.plan.frameworks import FRAMEWORKS

STEPS, EVERY, EVALUATED = 40, 10, 20
# Where the first attempt stands still for the kill to find it: some steps after a checkpoint.
STANDS_AT = 13
# What every framework's run answers with, beside other things.
ANSWERED = {
    "run_id", "name", "state", "reason", "host", "as_of", "attempt", "step", "target_step",
    "metrics", "findings", "checkpoint", "next_step",
}  # fmt: skip
MEASURED = frozenset({"loss", "lr", "grad_norm", "tokens_per_s", "step_time_s", "val_loss"})
RECORDED = MEASURED | {"clip_fraction", "tokens", "val_perplexity"}
CHECKPOINT = {"step", "time", "path", "size_bytes", "metrics", "tags", "verified"}
BUNDLE = {"train.py", "train.sh", "config.json", "training_config.yaml"}


def one_spec(folder: Path, framework: str, *, losses: int = 1, **changes: str) -> str:
    """The same text for every framework, but for its name and `changes`, which replace top-level
    lines. `losses`: in how many parts it computes that of a step."""
    lines = {
        "name": "alike",
        "framework": framework,
        "model": "{n_layer: 2, n_head: 2, d_model: 32, dropout: 0.1}",
        "batch": "{tokens: 256, micro_batch: 8}",
        "steps": str(STEPS),
        "eval": f"{{every_steps: {EVALUATED}, batches: 2, "
        'samples: {prompts: ["def "], max_tokens: 8}}',
        "checkpoint": f"{{every: {EVERY}, keep_latest: 3}}",
        "env": begin_with(folder / "standing", standing_after(losses * STANDS_AT, 1)),
    }
    return small_spec(folder, **{**lines, **changes})


def program_spec(folder: Path) -> str:
    words = ["--every", str(EVERY), "--eval-every", str(EVALUATED), *standing(STANDS_AT)]
    return light_spec(folder, *words, keep_latest=3, name="alike", steps=str(STEPS))


@dataclass(frozen=True)
class Row:
    """`spec`: the text of one whose first attempt stands still after step `STANDS_AT`. `refused`: a
    setting that the framework has no place for, and words of the reason. `files`: its own in the
    bundle. `recorded`: metrics of its runs. `final`: files of the final model. `writes_text`: its
    models can be sampled. `kept`: the steps of its checkpoints at the end."""

    spec: Callable[[Path], str]
    refused: tuple[str, str]
    final: frozenset[str]
    files: frozenset[str] = frozenset()
    recorded: frozenset[str] = RECORDED
    writes_text: bool = True
    kept: tuple[int, ...] = (20, 30, STEPS)


ROWS: Mapping[str, Row] = {
    "nanogpt": Row(
        lambda folder: one_spec(folder, "nanogpt"),
        ("compute.strategy=ddp", "single process"),
        frozenset({"manifest.json", "model.safetensors"}),
    ),
    "litgpt": Row(
        lambda folder: one_spec(
            folder, "litgpt", losses=2, model="{n_layer: 2, n_head: 2, d_model: 32}"
        ),
        ("compute.strategy=zero2", "LitGPT has ddp and fsdp alone"),
        frozenset({"manifest.json", "lit_model.pth"}),
        frozenset({"litgpt.yaml", "tokenizer"}),
    ),
    "hf": Row(
        lambda folder: one_spec(folder, "hf"),
        ("method=dpo", "take trl"),
        frozenset({"manifest.json", "model.safetensors"}),
        frozenset({"training_args.yaml", "tokenizer"}),
    ),
    "trl": Row(
        lambda folder: one_spec(folder, "trl"),
        ("method=pretrain", "TRL tunes models"),
        frozenset({"manifest.json", "model.safetensors"}),
        frozenset({"training_args.yaml", "tokenizer"}),
    ),
    "script": Row(
        program_spec,
        ("optimizer.lr=0.1", "the program's own arguments decide it"),
        frozenset({"model.txt"}),
        frozenset({"code.json"}),
        frozenset({"loss", "grad_norm", "val_loss"}),
        writes_text=False,
        kept=(10, 20, 30, STEPS),
    ),
}


def test_every_framework_has_a_row_here() -> None:
    assert ROWS.keys() == FRAMEWORKS.keys()


@pytest.mark.parametrize("framework", ROWS)
def test_what_it_has_no_place_for_is_refused_with_the_reason(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    setting, reason = ROWS[framework].refused
    error = command("plan", ROWS[framework].spec(tmp_path), "--set", setting, code=1)["error"]
    assert reason in f"{error['message']} {error['fix']}"
    assert setting.startswith(error["field"])
    assert command("runs")["runs"] == []


_OWN = ("nanogpt", "script")
_OTHERS = [name for name in ROWS if name not in _OWN]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["script", *at_length("nanogpt"), *by_engines(*_OTHERS)])
def test_a_killed_run_resumes_exactly_completes_and_answers_alike(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    row = ROWS[framework]
    run = command("launch", row.spec(tmp_path))["run_id"]
    there = {path.name for path in command.folder(run).root.iterdir()}
    assert there >= row.files | (BUNDLE if framework != "script" else {"config.json"})
    _kill_between_checkpoints(command, run)
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"

    (started, *_), again = _events(command, run, 2), _steps(command, run, 2)
    assert started["resumed_from"] == EVERY
    lost = {step: values for step, values in _steps(command, run, 1).items() if step > EVERY}
    assert len(lost) >= 2
    assert {step: again[step] for step in lost} == lost
    _assert_it_answers_alike(command, run, row)
    if row.writes_text:
        _assert_it_writes_text(command, run)
    command("fetch", run, "final", str(tmp_path / "fetched"))
    assert {path.name for path in (tmp_path / "fetched").iterdir()} >= row.final


def _kill_between_checkpoints(command: CommandLine, run: str) -> None:
    """Ends the trainer by SIGKILL where it stands, with a verified checkpoint behind it."""

    def stands() -> bool:
        events = _events(command, run, 1)
        verified = any(event.get("action") == "verified" for event in events)
        # LitGPT's last step is recorded when the next one has begun.
        return verified and STANDS_AT - 1 in _steps(command, run, 1)

    wait_until(stands, f"step {STANDS_AT}", bound_s=LONGEST_S)
    kill(processes_of(command.folder(run))["trainer"])


def _events(command: CommandLine, run: str, attempt: int) -> list[dict[str, Any]]:
    path = command.folder(run).attempt(attempt).events
    lines, _ = complete_lines(path.read_bytes() if path.exists() else b"")
    return [dict(decode(line).document) for line in lines]


def _steps(command: CommandLine, run: str, attempt: int) -> dict[int, tuple[float, ...]]:
    """What a step was computed to, to the last bit; without what was timed."""
    return {
        event["step"]: tuple(event["values"].get(key) for key in ("loss", "grad_norm", "lr"))
        for event in _events(command, run, attempt)
        if event["kind"] == "metric" and "loss" in event["values"]
    }


def _assert_it_answers_alike(command: CommandLine, run: str, row: Row) -> None:
    status = command("status", run)
    assert status.keys() >= ANSWERED
    assert status["metrics"].keys() == MEASURED & row.recorded
    assert (status["state"], status["attempt"], status["step"]) == ("completed", 2, STEPS)
    keys = [argument for key in sorted(row.recorded) for argument in ("--key", key)]
    metrics = command("metrics", run, *keys, "--all")["runs"][run]
    assert metrics.keys() == row.recorded
    assert metrics["loss"]["steps"] == list(range(1, STEPS + 1))
    assert metrics["loss"]["last"] < metrics["loss"]["first"] - 1.0
    assert metrics["val_loss"]["steps"] == [EVALUATED, STEPS]
    reported = command("checkpoints", run, "--verify")
    assert [entry["step"] for entry in reported["checkpoints"]] == [*row.kept]
    assert all(entry.keys() == CHECKPOINT for entry in reported["checkpoints"])
    assert all(entry["verified"] for entry in reported["checkpoints"])
    assert reported["resume_from"] == STEPS


def _assert_it_writes_text(command: CommandLine, run: str) -> None:
    """While it was trained, and now: of the final model, of a checkpoint, and the same again."""
    recorded = command("sample", run)["samples"]
    assert [(sample["step"], sample["untrusted_prompt"]) for sample in recorded] == [
        (step, "def ") for step in (EVALUATED, STEPS)
    ]
    assert all(sample["ended"] in ("max_tokens", "end_of_text") for sample in recorded)
    request = ("sample", run, "--prompt", "def ", "--max-tokens", "8", "--seed", "1337")
    written = command(*request, "--count", "2")
    assert (written["path"], written["step"], len(written["samples"])) == ("final", STEPS, 2)
    assert written["samples"][0]["untrusted_text"] == recorded[-1]["untrusted_text"]
    earlier = command(*request, "--from", "20", "--temperature", "0")
    assert (earlier["path"], earlier["step"]) == ("checkpoints/step-00000020", 20)
    assert earlier["samples"][0]["tokens"] <= 8

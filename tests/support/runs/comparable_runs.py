"""What the test of one spec under every framework shares: the spec, a kill, and answers' shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.runs.running_run import (
    CommandLine,
    begin_with,
    kill,
    processes_of,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.core.protocol.lines import decode

STEPS = 120
PASSES = 100  # of one to eight a step
# The fields that every framework's run answers with, beside others.
METRICS = {
    "loss", "lr", "grad_norm", "clip_fraction", "tokens", "tokens_per_s", "step_time_s",
    "val_loss", "val_perplexity",
}  # fmt: skip
STATUS = {
    "run_id", "name", "state", "reason", "host", "as_of", "attempt", "step", "target_step",
    "metrics", "findings", "checkpoint", "next_step",
}  # fmt: skip
STATUS_METRICS = {"loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "step_time_s"}
CHECKPOINT = {"step", "time", "path", "size_bytes", "metrics", "tags", "verified"}


def one_spec(folder: Path, framework: str) -> str:
    """The same text for every framework, but for its name; LitGPT's models have no dropout.

    Its first attempt stands still between step 10 and the last, for the kill to find it.
    """
    dropout = 0.0 if framework == "litgpt" else 0.1
    return small_spec(
        folder,
        name="alike",
        framework=framework,
        model=f"{{n_layer: 2, n_head: 2, d_model: 32, dropout: {dropout}}}",
        steps=str(STEPS),
        eval='{every_steps: 40, batches: 2, samples: {prompts: ["def "], max_tokens: 8}}',
        checkpoint="{every: 10, keep_latest: 3}",
        env=begin_with(folder / "standing", standing_after(PASSES, 1)),
    )


def kill_after_a_checkpoint(command: CommandLine, run_id: str) -> None:
    """Ends the trainer by SIGKILL as soon as a checkpoint of the first attempt is verified."""
    folder = command.folder(run_id)
    events = folder.attempt(1).events

    def has_checkpoint() -> bool:
        return events.exists() and b'"action":"verified"' in events.read_bytes()

    wait_until(has_checkpoint, "the first checkpoint", bound_s=120.0)
    kill(processes_of(folder)["trainer"])


def started(command: CommandLine, run_id: str, attempt: int) -> dict[str, Any]:
    """The first event of an attempt."""
    first = command.folder(run_id).attempt(attempt).events.read_bytes().split(b"\n")[0]
    return dict(decode(first).document)

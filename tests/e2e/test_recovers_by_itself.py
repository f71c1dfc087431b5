"""Real trainings with a planted fault: the host finds the cause, and continues by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs.running_run import LONGEST_S, CommandLine, small_spec

# Python reads this before the trainer's own code: more rows than that don't fit "into memory", and
# one loss, once, is not a number.
PLANTED = """\
import pathlib
import torch
from torch.nn import functional

plain = functional.cross_entropy
struck = pathlib.Path("struck")
calls = 0


def planted(logits, *others, **named):
    global calls
    rows = logits.shape[0]
    if rows > MOST_ROWS:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.15 GiB of which 1.06 GiB is free."
        )
    calls += torch.is_grad_enabled()
    loss = plain(logits, *others, **named)
    if calls == NAN_AT and not struck.exists():
        struck.touch()
        return loss * float("nan")
    return loss


functional.cross_entropy = planted
"""


@pytest.mark.long
def test_a_training_that_runs_out_of_memory_and_meets_nan_completes_by_itself(
    command: CommandLine, tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    planted = PLANTED.replace("MOST_ROWS", "128").replace("NAN_AT", "61")
    (faults / "sitecustomize.py").write_text(planted)
    batch = "{tokens: 256, micro_batch: 8}"
    spec = small_spec(tmp_path, batch=batch, env=f"{{PYTHONPATH: {faults}}}")
    run = command("launch", spec)["run_id"]
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert (ended["state"], ended["step"]) == ("completed", 60)

    folder = command.folder(run)
    reported = [json.loads(line) for line in folder.journal.read_bytes().splitlines()]
    starts = [event for event in reported if event["kind"] == "attempt_starting"]
    assert [(event["why"], event["by"]) for event in starts] == [
        ("launch", None),
        ("cuda_oom", "policy:on_oom halve_micro_batch"),
        ("guard", "policy:on_nan rewind_skip_data"),
    ]
    # One that is reported again, with more evidence, is the same.
    by_id = {event["finding"]["id"]: event["finding"] for event in reported if "finding" in event}
    found = list(by_id.values())
    assert [finding["code"] for finding in found] == ["cuda_oom", "nan_loss"]
    for number, micro_batch, accumulation in ((1, 8, 1), (2, 4, 2), (3, 4, 2)):
        config = json.loads(folder.attempt(number).config.read_bytes())
        given = (config["batch"]["micro_batch"], config["batch"]["accumulation"])
        assert given == (micro_batch, accumulation), number
    loss = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, 61))
    assert "NaN" not in loss["values"]

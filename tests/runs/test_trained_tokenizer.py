"""Runs whose tokenizer is trained on their sources: launched, sampled, and exported with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.running_run import LONGEST_S, CommandLine, small_spec
from support.session.tiers import by_engines

from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("tokenizer", "framework", "tokens"),
    [
        ("char", "nanogpt", 256),
        ("{train: bpe, size: 512}", "nanogpt", 512),
        *by_engines(("{train: bpe, size: 512}", "hf", 512)),
    ],
)
def test_a_trained_tokenizer_serves_training_sampling_and_the_final_model(
    command: CommandLine, tmp_path: Path, tokenizer: str, framework: str, tokens: int
) -> None:
    text = small_spec(tmp_path, framework=framework, steps="6", eval="{every_steps: 3, batches: 2}")
    text = text.replace("seq_len: 32", f"seq_len: 32, tokenizer: {tokenizer}")
    run = command("launch", text)["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    setup = "\n".join(command("logs", run, "--stream", "setup")["lines"])
    assert f" of {tokens}, " in setup and "; trained on " in setup
    final = read_tokenizer_folder(str(command.folder(run).root / "final"))
    assert final.problem is None and final.end_of_text == 0 and final.vocab_size <= tokens
    sampled = command("sample", run, "--prompt", "the loss", "--max-tokens", "8")
    (sample,) = sampled["samples"]
    assert sample["tokens"] <= 8
    assert isinstance(sample["untrusted_text"], str)

"""Text from a run's model: where it is refused and why, and how a model's words are shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.mcp.http_server import settings
from support.mcp.mcp_client import connected, error_of
from support.runs.light_run import light_spec
from support.runs.running_run import LONGEST_S, CommandLine, wait_until
from support.train.preference_data import save_tiny_model

pytestmark = pytest.mark.slow
_PROGRAM = """\
import json, shutil, sys
for step in (1, 2):
    print(json.dumps({"step": step, "loss": 1.0 / step}), flush=True)
shutil.copytree(sys.argv[1], "out/step-2")
"""
_TOKEN = "hf_4815162342"
_SAMPLE = {"texts": [{"text": "the token is TOKEN", "tokens": 3, "ended": "end_of_text"}]}
_SAMPLE |= {"path": "checkpoints/TOKEN", "step": 2, "device": "TOKEN"}
_WRITES = f"print({json.dumps(json.dumps(_SAMPLE))})"
_FAILS = "raise SystemExit('the token is TOKEN')"
_ASKED = {"prompt": "to be", "max_tokens": 400, "temperature": 99.0, "seed": 3}
_MOST_CALLS, _TOO_LATE = 4, "not done within"
_NANOGPT = """\
name: sampled
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 2
"""


def saving(folder: Path, model: Path) -> str:
    """A spec over a program that saves `model` as its checkpoint."""
    program = folder / "program"
    program.mkdir(parents=True)
    (program / "program.py").write_text(_PROGRAM)
    script = {
        "path": str(program),
        "command": [sys.executable, "program.py", str(model)],
        "checkpoints": {"path": "out/step-*"},
    }
    return f"name: saving\nframework: script\nscript: {json.dumps(script)}\nsteps: 2\n"


def completed(command: CommandLine, spec: str) -> str:
    run: str = command("launch", spec)["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    return run


async def in_time(client: Client, run: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of the first call that other work left the time to load PyTorch."""
    for _ in range(_MOST_CALLS):
        result = await client.call_tool("sample_run", {"run_id": run, **asked})
        if not result.is_error or _TOO_LATE not in result.content[0].text:  # type: ignore[union-attr]
            break
    assert not result.is_error, result.content
    answer: dict[str, Any] = result.structured_content or {}
    return answer


def refused(command: CommandLine, *arguments: str, code: int = 1) -> dict[str, Any]:
    error: dict[str, Any] = command("sample", *arguments, code=code)["error"]
    return error


@pytest.mark.engine
def test_a_program_s_folder_of_transformers_writes_text_without_control_characters(
    command: CommandLine, tmp_path: Path
) -> None:
    run = completed(command, saving(tmp_path, save_tiny_model(tmp_path / "model")))
    words = [word for key, value in _ASKED.items() for word in (_option(key), str(value))]
    written = command("sample", run, *words)
    assert written["path"] == "checkpoints/step-00000002"
    assert not _unprintable(written["samples"][0]["untrusted_text"])
    assert "no chat template" in refused(command, run, "--prompt", "a", "--chat")["message"]


def test_over_mcp_a_run_s_model_writes_text_without_control_characters(
    command: CommandLine, tmp_path: Path
) -> None:
    corpus, spec = tmp_path / "text.txt", tmp_path / "spec.yaml"
    corpus.write_text("A line of text to learn from.\n" * 400)
    spec.write_text(_NANOGPT.replace("CORPUS", str(corpus)))
    run = completed(command, str(spec))

    async def over_mcp() -> None:
        async with connected({"TRAINMASTER_HOME": str(command.home)}) as client:
            (text,) = (await in_time(client, run, _ASKED))["samples"]
            assert text["tokens"] == 400 or text["ended"] in ("end_of_text", "time")
            assert len(text["untrusted_text"]) > 5
            assert not _unprintable(text["untrusted_text"])
            assert (await in_time(client, run, {}))["samples"] == []
            wrong = await error_of(client, "sample_run", run_id=run, prompt="a", count=9)
            assert wrong.startswith("BAD_ARGUMENT") and "Give 1 to 8" in wrong

    anyio.run(over_mcp)
    assert refused(command, run, "--prompt", "a", "--from", "1")["code"] == "NO_CHECKPOINT"
    too_many = refused(command, run, "--prompt", "a", "--max-tokens", "9999", code=2)
    assert too_many["field"] == "max_tokens"


def test_a_program_s_own_format_is_refused_with_the_reason(
    command: CommandLine, tmp_path: Path
) -> None:
    run = completed(command, light_spec(tmp_path))
    error = refused(command, run, "--prompt", "to be")
    assert error["code"] == "NOT_SAMPLED"
    assert "not a folder of transformers" in error["message"]
    assert f"fetch {run} latest" in error["fix"]  # there is no `final`


def test_what_has_no_weights_here_is_refused_before_anything_runs(
    command: CommandLine, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\n")
    watched = command("attach", "--log", str(log))["run_id"]
    assert refused(command, watched, "--prompt", "a")["code"] == "UNSUPPORTED"
    assert refused(command, "nobody", "--prompt", "a")["code"] == "RUN_NOT_FOUND"


@pytest.mark.attack
def test_a_secret_in_a_host_s_answer_is_masked_also_after_the_run_has_ended(
    command: CommandLine, tmp_path: Path
) -> None:
    """By then neither the host nor the home has a copy of it for the run."""
    settings(command.home, "secrets: {allow: [HF_TOKEN]}")
    secrets = command.home / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"HF_TOKEN={_TOKEN}")
    run = completed(command, light_spec(tmp_path, secrets="[HF_TOKEN]"))
    kept = command.home / "secrets" / f"{run}.json"
    wait_until(lambda: command("tick") and not kept.exists(), "the home's copy is removed")
    model = command.folder(run).root / "trainer_runtime/train/sample/__main__.py"
    for program, code in ((_WRITES, 0), (_FAILS, 1)):
        model.write_text(program.replace("TOKEN", _TOKEN))
        answer = json.dumps(command("sample", run, "--prompt", "a", code=code))
        assert _TOKEN not in answer
        assert f"the token is {'*' * len(_TOKEN)}" in answer


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _unprintable(text: str) -> list[str]:
    return [letter for letter in text if not (letter.isprintable() or letter in "\n\t ")]

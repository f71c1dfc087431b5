"""Programs of others that are run as they are: killed, stopped, torn and resumed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.box.foreign_program import program_spec, write_program
from support.runs.running_run import LONGEST_S, CommandLine, wait_until

from trainer_runtime.box.processes.open_files import pids

pytestmark = pytest.mark.slow


@pytest.fixture
def here(home: Path) -> CommandLine:
    """`trainmaster` with this machine as its host."""
    return CommandLine(home, "local", home / "local")


def test_a_program_is_resumed_from_its_own_checkpoint_however_it_ends(
    here: CommandLine, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "program")
    run = here("launch", program_spec(program, "--stand-at", "25"))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    standing(here, run, 25)
    kill_program(folder)
    # Its checkpoint does not say its step, which is that of the log when it was written.
    assert 20 <= started(here, folder, 2)["resumed_from"] <= 25
    standing(here, run, 25)
    assert not (folder / "code" / "__pycache__").exists()
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "stopped"
    (folder / "code" / "go").touch()  # it stands no longer
    here("resume", run)
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    loss = here("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, 41))
    listed = here("checkpoints", run, "--verify")
    assert [one["step"] for one in listed["checkpoints"]][-1] == listed["resume_from"] == 40
    assert not any(one["verified"] is False for one in listed["checkpoints"])
    fetched = tmp_path / "fetched"
    here("fetch", run, "final", str(fetched))
    assert [path.read_text() for path in fetched.rglob("model.txt")] == ["trained"]


def test_a_torn_checkpoint_is_refused_and_the_one_before_is_put_back(
    here: CommandLine, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "program")
    run = here("launch", program_spec(program, "--stand-at", "25", "--reports"))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    standing(here, run, 25)
    wait_until(lambda: here("checkpoints", run)["resume_from"] == 20, "a checkpoint")
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert events(folder, 1, "metric")[-1]["values"] == {"loss": 5.0, "own": 25.0}
    saved = folder / "code" / "out" / "ckpt.pt"
    whole = saved.read_bytes()
    saved.write_bytes(whole[:500])
    (folder / "code" / "go").touch()
    here("resume", run)
    begun = started(here, folder, 2)
    assert begun["resumed_from"] == 20
    assert [one["reason"] for one in begun["skipped"]] == [
        "ckpt.pt is torn: its list of records is not whole"
    ]
    assert (folder / "refused" / "ckpt.pt").read_bytes() == whole[:500]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))


def test_an_end_before_the_last_step_is_not_complete(here: CommandLine, tmp_path: Path) -> None:
    spec = program_spec(write_program(tmp_path / "program")).replace("steps: 40", "steps: 400")
    run = here("launch", spec + "recovery: {on_crash: stop}\n")["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["step"], status["target_step"]) == ("failed", 40, 400)


@pytest.mark.skipif("TRAINMASTER_NANOGPT" not in os.environ, reason="needs a checkout of nanoGPT")
def test_nanogpt_itself_is_resumed_from_its_own_checkpoint(
    here: CommandLine, tmp_path: Path
) -> None:
    """Unchanged, with its data beside it: killed twice, stopped once, its checkpoint torn once."""
    program = nanogpt(tmp_path / "nanoGPT")
    run = here("launch", nanogpt_spec(program))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    for attempt in (2, 3):
        saved_at(here, run, attempt - 1)
        kill_program(folder)
        assert started(here, folder, attempt)["resumed_from"] > 0
    saved_at(here, run, 3)
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    before = [one["step"] for one in here("checkpoints", run)["checkpoints"]]
    saved = folder / "code" / "out" / "ckpt.pt"
    saved.write_bytes(saved.read_bytes()[:-3000])
    here("resume", run)
    begun = started(here, folder, 4)
    assert begun["resumed_from"] in before
    assert begun["skipped"]
    here("stop", run)


def nanogpt(target: Path) -> Path:
    """The checkout's files, with tokens beside them."""
    source = Path(os.environ["TRAINMASTER_NANOGPT"])
    data = target / "data" / "shakespeare_char"
    (target / "config").mkdir(parents=True)
    data.mkdir(parents=True)
    for name in ("train.py", "model.py", "configurator.py", "config/train_shakespeare_char.py"):
        (target / name).write_bytes((source / name).read_bytes())
    for name, tokens in (("train", 100_000), ("val", 20_000)):
        (data / f"{name}.bin").write_bytes(b"".join(bytes((n % 65, 0)) for n in range(tokens)))
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {}, "stoi": {}}))
    return target


def nanogpt_spec(program: Path) -> str:
    sizes = {"block_size": 32, "batch_size": 4, "n_layer": 2, "n_head": 2, "n_embd": 32}
    more = {"device": "cpu", "compile": False, "eval_iters": 1, "log_interval": 1, "out_dir": "out"}
    often = {"max_iters": 100_000, "eval_interval": 50, "always_save_checkpoint": True}
    words = [f"--{name}={value}" for name, value in (sizes | more | often).items()]
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *words]
    return f"""\
name: nano
framework: script
script:
  path: {program}
  command: {json.dumps(command)}
  resume: [--init_from=resume]
  checkpoints: {{path: out/ckpt.pt}}
steps: 100000
compute: {{gpus: 0}}
"""


def saved_at(command: CommandLine, run: str, attempt: int) -> None:
    """Waits for a verified checkpoint of an attempt."""

    def is_saved() -> bool:
        folder = Path(command("status", run, "--detail")["folder"])
        return any(one["action"] == "verified" for one in events(folder, attempt, "checkpoint"))

    wait_until(is_saved, "a checkpoint", LONGEST_S)


def standing(command: CommandLine, run: str, step: int) -> None:
    wait_until(lambda: command("status", run)["step"] == step, f"step {step}", LONGEST_S)


def started(command: CommandLine, folder: Path, attempt: int) -> dict[str, Any]:
    wait_until(lambda: events(folder, attempt, "started"), f"attempt {attempt}", LONGEST_S)
    return events(folder, attempt, "started")[0]


def events(folder: Path, attempt: int, kind: str) -> list[dict[str, Any]]:
    path = folder / "attempts" / str(attempt) / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def kill_program(folder: Path) -> None:
    """Kills the processes that run in the program's folder."""
    for pid in pids():
        try:
            place = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if place == str(folder / "code"):
            os.kill(pid, signal.SIGKILL)

"""Programs of others that are run as they are: killed, stopped, torn and resumed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from support.backends.ssh_hosts import Sshd
from support.box.foreign_program import program_spec, with_data, write_program
from support.runs.running_run import LONGEST_S, CommandLine, wait_until
from support.train.preference_data import save_tiny_model

from trainer_runtime.box.processes.open_files import pids

pytestmark = pytest.mark.slow


@pytest.fixture
def here(home: Path) -> CommandLine:
    """`trainmaster` with this machine as its host."""
    return CommandLine(home, "local", home / "local")


@pytest.fixture
def remote(home: Path) -> Iterator[CommandLine]:
    """`trainmaster` with a host over SSH, which it knows as `gpu1`."""
    with Sshd(user=who_may_run(sys.executable)) as host:
        record = host.record()
        command = CommandLine(home, "gpu1", host.home / "trainmaster")
        address = f"{record.user}@{record.address}:{record.port}"
        command("hosts", "add", "gpu1", address, "--key", str(record.key), "--root", record.root)
        yield command


def test_a_program_travels_to_a_host_by_its_commit(remote: CommandLine, tmp_path: Path) -> None:
    program = write_program(tmp_path / "program")
    (program / ".gitignore").write_text("__pycache__/\ndata/\n")
    (program / "data").mkdir()
    (program / "data" / "tokens.bin").write_bytes(bytes(1000))
    commit = committed(program)
    given = with_data(program_spec(program, "--data", "{data}", steps=12, host="gpu1"), tmp_path)
    run = remote("launch", given)["run_id"]
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    status = remote("status", run, "--detail")
    assert (status["state"], status["step"], status["code"]) == ("completed", 12, commit[:12])
    sent = sorted(one.name for one in Path(status["folder"], "code").iterdir() if one.is_file())
    assert sent == [".gitignore", "loop.py", "report.py"]
    rows = remote("runs", "--code", commit[:8])["runs"]
    assert [row["run_id"] for row in rows] == [run]
    assert remote("runs", "--code", "0123abcd")["runs"] == []


def test_a_program_is_resumed_from_its_own_checkpoint_however_it_ends(
    here: CommandLine, tmp_path: Path
) -> None:
    """Killed, then stopped, then with a torn checkpoint: the one before is put back."""
    program = write_program(tmp_path / "program")
    run = here("launch", program_spec(program, "--stand-at", "25", "--reports"))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    standing(here, run, 25)
    kill_program(folder)
    assert started(here, folder, 2)["resumed_from"] == 20
    standing(here, run, 25)
    assert not (folder / "code" / "__pycache__" / "loop.pyc").exists()
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "stopped"
    saved = folder / "code" / "out" / "ckpt.pt"
    whole = saved.read_bytes()
    saved.write_bytes(whole[:500])
    (folder / "code" / "go").touch()  # it stands no longer
    here("resume", run)
    begun = started(here, folder, 3)
    assert begun["resumed_from"] == 20
    torn = "ckpt.pt is torn: its list of records is not whole"
    assert [one["reason"] for one in begun["skipped"]] == [torn]
    assert (folder / "refused" / "ckpt.pt").read_bytes() == whole[:500]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    series = here("metrics", run, "--key", "loss", "--key", "own", "--all")["runs"][run]
    assert series["own"]["steps"] == series["own"]["values"] == list(range(1, 41))
    assert set(series["loss"]["values"]) == {5.0}  # its own, not that of the log
    listed = here("checkpoints", run, "--verify")
    assert listed["checkpoints"][-1]["step"] == listed["resume_from"] == 40
    assert len(listed["checkpoints"]) == 2
    fetched = tmp_path / "fetched"
    here("fetch", run, "final", str(fetched))
    assert [path.read_text() for path in fetched.rglob("model.txt")] == ["trained"]


def test_a_rendered_program_is_run_by_hand_from_another_place(
    here: CommandLine, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "program")
    spec = tmp_path / "spec.yaml"
    words = ("--reports", "--data", "{data.tokens.txt}")
    text = with_data(program_spec(program, *words, steps=12), tmp_path)
    spec.write_text(text.replace("final: out/final", "final: out"))
    here("render", str(spec), str(tmp_path / "bundle"))
    shutil.rmtree(program)
    (tmp_path / "tokens.txt").unlink()
    place = (tmp_path / "bundle").rename(tmp_path / "elsewhere")
    for _ in range(2):  # again: from its own checkpoint
        words = ["sh", "train.sh"]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "iter 12:" in done.stdout
    assert "iter 10:" not in done.stdout
    kept = [path.name for path in (place / "final").rglob("*") if path.is_file()]
    assert kept == ["model.txt"]  # not the checkpoints beside it


def test_an_end_before_the_last_step_is_not_complete(here: CommandLine, tmp_path: Path) -> None:
    spec = program_spec(write_program(tmp_path / "program")).replace("steps: 40", "steps: 400")
    run = here("launch", spec + "recovery: {on_crash: stop}\n")["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["step"], status["target_step"]) == ("failed", 40, 400)


@pytest.mark.skipif("TRAINMASTER_NANOGPT" not in os.environ, reason="needs a checkout of nanoGPT")
def test_nanogpt_itself_is_resumed_from_its_own_checkpoint_over_ssh(
    remote: CommandLine, tmp_path: Path
) -> None:
    """Unchanged, with its data beside it: killed twice, stopped once, its checkpoint torn once."""
    program, here = nanogpt(tmp_path / "nanoGPT"), remote
    run = here("launch", nanogpt_spec(program) + "host: gpu1\n")["run_id"]
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


@pytest.mark.skipif("TRAINMASTER_PROGRAMS" not in os.environ, reason="takes a minute")
def test_the_command_line_of_trl_is_resumed_from_its_own_folders(
    here: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "sft"
    save_tiny_model(program / "model")
    (program / "data").mkdir()
    rows = [json.dumps({"text": f"{n} plus {n} is {2 * n}. " * 3}) for n in range(200)]
    (program / "data" / "train.jsonl").write_text("\n".join(rows) + "\n")
    run = here("launch", trl_spec(program))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    saved_at(here, run, 1)
    kill_program(folder)
    assert started(here, folder, 2)["resumed_from"] % 50 == 0
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    loss = here("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, 601))
    listed = here("checkpoints", run)["checkpoints"]
    assert [one["step"] for one in listed][-1] == 600
    assert here("fetch", run, "final", str(tmp_path / "fetched"))["files"] > 0


@pytest.mark.skipif("TRAINMASTER_PROGRAMS" not in os.environ, reason="starts PyTorch three times")
def test_two_ranks_of_torchrun_are_one_program(here: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "train.py").write_text(_RANKS)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--standalone", "--nproc_per_node={processes}", "train.py"]
    spec = f"""\
name: ranks
framework: script
script:
  path: {tmp_path}/ranks
  command: {json.dumps(command)}
  checkpoints: {{path: "ckpt_*.pt"}}
steps: 30
compute: {{gpus: 0, processes: 2}}
"""
    run = here("launch", spec)["run_id"]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert here("checkpoints", run)["resume_from"] == 30


_RANKS = """\
import time
import torch
import torch.distributed as ranks
ranks.init_process_group("gloo")
for step in range(1, 31):
    total = torch.ones(1)
    ranks.all_reduce(total)
    if ranks.get_rank() == 0:
        print(f"step {step}/30 loss {total.item() * 2 - 0.01 * step:.3f}", flush=True)
    time.sleep(0.02)
if ranks.get_rank() == 0:
    torch.save({"step": 30, "model": {"w": total}}, "ckpt_30.pt")
ranks.destroy_process_group()
"""


def trl_spec(program: Path) -> str:
    given = {"model_name_or_path": "model", "dataset_name": "data", "output_dir": "out"}
    numbers = {"max_steps": 600, "save_steps": 50, "logging_steps": 1, "max_length": 32}
    more = {"per_device_train_batch_size": 2, "report_to": "none"}
    options = (given | numbers | more).items()
    words = [word for name, value in options for word in (f"--{name}", str(value))]
    command = [str(Path(sys.executable).with_name("trl")), "sft", "--use_cpu", *words]
    return f"""\
name: sft
framework: script
script:
  path: {program}
  command: {json.dumps(command)}
  resume: [--resume_from_checkpoint, "{{checkpoint}}"]
  checkpoints: {{path: "out/checkpoint-*", keep_latest: 3}}
  final: out
env: {{HF_HUB_OFFLINE: "1"}}
steps: 600
compute: {{gpus: 0}}
"""


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


def committed(folder: Path) -> str:
    """A repository of all that is not ignored; its commit."""
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True)
    asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def who_may_run(program: str) -> Literal["root", "trainer"]:
    """An ordinary user, unless this checkout lies where only root may read."""
    ways = Path(program).resolve().parents
    return "trainer" if all(way.stat().st_mode & 0o001 for way in ways) else "root"


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

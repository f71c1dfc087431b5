"""A program in the shape of a home-made training loop, without PyTorch: prints, saves, continues.

It replaces one file, as nanoGPT does; a checkpoint is an archive with a CRC-32 per record, as
`torch.save` writes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from support.runs.running_run import LONGEST_S, CommandLine, wait_until

from trainer_runtime.host.processes.open_files import pids

LOOP = """
import argparse, json, os, pathlib, time, zipfile
from report import report, should_stop
p = argparse.ArgumentParser()
p.add_argument("--steps", type=int)
p.add_argument("--stand-at", type=int, default=10**9)
p.add_argument("--resume")
p.add_argument("--reports", action="store_true")
p.add_argument("--data")
a = p.parse_args()
if a.data and open(a.data).read() != "tokens":
    raise SystemExit("other data")
start = 0
if a.resume:
    with zipfile.ZipFile(a.resume) as z:
        start = json.loads(z.read("state"))["step"]
os.makedirs("out", exist_ok=True)
for step in range(start + 1, a.steps + 1):
    print(f"iter {step}: loss {4 - 0.01 * step:.4f}, time 10.00ms", flush=True)
    if a.reports:
        report(step, loss=5.0, own=float(step))
    if step % 10 == 0:
        with zipfile.ZipFile("out/ckpt.pt", "w") as z:
            z.writestr("state", json.dumps({"step": step, "pad": "x" * 1000}))
        report(step, checkpoint="out/ckpt.pt") if a.reports else None
    while step >= a.stand_at and not pathlib.Path("go").exists():
        if a.reports and should_stop():
            raise SystemExit(0)
        time.sleep(0.02)
    time.sleep(0.01)
pathlib.Path("out/final").mkdir(exist_ok=True)
pathlib.Path("out/final/model.txt").write_text("trained")
"""
# In the shape of Hugging Face Trainer: a folder for each checkpoint, a line of JSON-like metrics.
TRAINER = """
import json, pathlib, struct, sys, time, zipfile
out = pathlib.Path("out")
start = 0
if len(sys.argv) > 1:
    start = json.loads(pathlib.Path(sys.argv[1], "trainer_state.json").read_text())["global_step"]
for step in range(start + 1, 41):
    values = {"loss": round(4 - 0.01 * step, 4), "learning_rate": 1e-4, "epoch": step / 20}
    print(values, flush=True)
    if step % 10 == 0:
        folder = out / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        head = struct.pack("<Q", len(header)) + header
        (folder / "model.safetensors").write_bytes(head + bytes(16))
        with zipfile.ZipFile(folder / "optimizer.pt", "w") as z:
            z.writestr("data.pkl", b"moments")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    while step == 25 and not pathlib.Path("go").exists():
        time.sleep(0.02)
(out / "model.safetensors").write_bytes(head + bytes(16))
"""
REPORT = Path(__file__).resolve().parents[3] / "templates" / "script" / "report.py"


def write_program(folder: Path) -> Path:
    """The program's folder."""
    folder.mkdir(parents=True)
    (folder / "loop.py").write_text(LOOP)
    (folder / "report.py").write_text(REPORT.read_text())
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "loop.pyc").write_bytes(b"old")
    return folder


def with_data(spec: str, folder: Path) -> str:
    """The spec with a file of `folder` that the program reads by `--data`."""
    (folder / "tokens.txt").write_text("tokens")
    return f"{spec}data: {{sources: [{{path: {folder}/tokens.txt}}]}}\n"


def program_spec(program: Path, *words: str, steps: int = 40, host: str = "local") -> str:
    """A spec's text; `words`: further arguments of the program."""
    command = ["python3", "loop.py", "--steps", str(steps), *words]
    return f"""\
name: program
framework: script
host: {host}
script:
  path: {program}
  command: {command}
  resume: [--resume, "{{checkpoint}}"]
  checkpoints: {{path: out/ckpt.pt}}
  final: out/final
steps: {steps}
compute: {{gpus: 0}}
"""


def trainer_spec(program: Path) -> str:
    return f"""\
name: trainer
framework: script
script:
  path: {program}
  command: [python3, train.py]
  resume: ["{{checkpoint}}"]
  checkpoints: {{path: "out/checkpoint-*"}}
  final: out
compute: {{gpus: 0}}
"""


def committed(folder: Path) -> str:
    """A repository of all that is not ignored; its commit."""
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True)
    asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def saved_at(command: CommandLine, run: str, attempt: int, step: int = 0) -> None:
    """Waits for a verified checkpoint of an attempt, of that step or a later one."""
    folder = Path(command("status", run, "--detail")["folder"])

    def is_saved() -> bool:
        saved = events(folder, attempt, "checkpoint")
        return any(one["action"] == "verified" and one["step"] >= step for one in saved)

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

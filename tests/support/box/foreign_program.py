"""A program in the shape of a home-made training loop, without PyTorch: prints, saves, continues.

It replaces one file, as nanoGPT does; a checkpoint is an archive with a CRC-32 per record, as
`torch.save` writes it.
"""

from __future__ import annotations

from pathlib import Path

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

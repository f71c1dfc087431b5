"""What only a GPU can answer: speed, checkpoints, precisions, recovery, telemetry, frameworks.

    python3 tests/benchmarks/gpu.py [FOLDER] [--kind bench|test] [--parts speed,resume] [--within S]

It needs PyTorch and nothing else: no installation of this project, no network. Each part is a
process of its own with a bound in time; what one of them lacks or fails at changes no other.
TRAINMASTER_NANOGPT names the folder of nanoGPT, the peer. After every part FOLDER (else $OUT, else
./gpu-results) holds the results as gpu.json and gpu.md (with --kind: gpu-test, gpu-bench), and the
output as gpu.log. To record them, copy gpu.json to tests/benchmarks/results and run `make docs`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.benchmarks.benchmark import RESULTS_VARIABLE, Benchmark
from support.benchmarks.machine import machine_shape
from support.benchmarks.nanogpt import nanogpt_folder
from support.benchmarks.result import Result
from support.benchmarks.table import document, section
from support.gpu import frameworks, paths, speed
from support.gpu.part import LackingError, Part, Setting
from support.gpu.runs import end_processes_in

_LACKING = 3  # the exit code of a part that can't be run here
_LEAST_S = 15.0
_TRL = ("trl", "peft", "datasets")
PARTS = {
    "checkpoint": Part("bench", "stall of a checkpoint", paths.measure_checkpoints, 60),
    "resume": Part("test", "resuming bit for bit", paths.resume_bit_for_bit, 100),
    "precision": Part("test", "precisions, torch.compile", paths.train_in_each_precision, 100),
    "oom": Part(
        "test", "an out-of-memory repaired", paths.repair_out_of_memory, 110, cuda_only=True
    ),
    "telemetry": Part("test", "telemetry", paths.watch_telemetry, 75, cuda_only=True),
    "speed": Part("bench", "speed against nanoGPT", speed.compare_loops, 330),
    "hf": Part("test", "hf", frameworks.train_hf, 90, ("transformers", "accelerate")),
    "trl-lora": Part("test", "trl, sft, lora", frameworks.train_trl, 70, _TRL),
    "trl-nf4": Part(
        "test",
        "trl, sft, lora, nf4",
        frameworks.train_trl_nf4,
        70,
        (*_TRL, "bitsandbytes"),
        cuda_only=True,
    ),
    "litgpt": Part("test", "litgpt, pretrain", frameworks.train_litgpt, 70, ("litgpt",)),
    "litgpt-lora": Part("test", "litgpt, lora", frameworks.train_litgpt_lora, 70, ("litgpt",)),
    "litgpt-nf4": Part(
        "test",
        "litgpt, lora, nf4",
        frameworks.train_litgpt_nf4,
        70,
        ("litgpt", "bitsandbytes"),
        cuda_only=True,
    ),
}


def main() -> int:
    options = _options()
    if options.part:
        return run_part(PARTS[options.part], options)
    target = Path(options.target or os.environ.get("OUT") or "gpu-results")
    target.mkdir(parents=True, exist_ok=True)
    lacking = lack_of_everything(options.device)
    print(f"{machine_shape()}\n{lacking or 'PyTorch and the device are there'}", flush=True)
    name = f"gpu-{options.kind}" if options.kind else "gpu"
    log = target / f"{name}.log"
    log.unlink(missing_ok=True)
    deadline_s = time.monotonic() + options.within
    results: list[Result] = []
    for part in chosen(options):
        found = results_of(part, options, log, deadline_s, lacking)
        results += found or [Result(name, PARTS[part].asks, "", not_run="it reported nothing")]
        write(target / name, results)
    print((target / f"{name}.md").read_text())
    failed = [one for one in results if one.verdict == "missed" or "failed" in one.not_run]
    return 2 if lacking else 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", nargs="?", metavar="FOLDER")
    parser.add_argument("--kind", choices=("bench", "test"), help="only these parts")
    parser.add_argument("--parts", default="", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--within", type=float, default=570.0, help="seconds for everything")
    parser.add_argument("--slack", type=float, default=1.0, help="times each part's own bound")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(filter(None, options.parts.split(","))) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def chosen(options: argparse.Namespace) -> list[str]:
    named = [name for name in options.parts.split(",") if name]
    return named or [name for name in PARTS if options.kind in (None, PARTS[name].kind)]


def lack_of_everything(device: str) -> str:
    """What keeps every part from running here; empty where nothing does."""
    if importlib.util.find_spec("torch") is None:
        return "this interpreter has no PyTorch: run it by one that has"
    if device == "cpu":
        return ""
    asked = "import torch; print(torch.cuda.is_available())"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "PyTorch took more than 120 s to find a GPU"
    if answer.returncode != 0:
        return f"PyTorch can't be imported: {answer.stderr.strip()[-300:]}"
    return "" if answer.stdout.strip() == "True" else "PyTorch sees no GPU"


def results_of(
    name: str, options: argparse.Namespace, log: Path, deadline_s: float, lacking: str
) -> list[Result]:
    """What a part reports, by a process of its own, whatever becomes of that."""
    part, left_s = PARTS[name], deadline_s - time.monotonic()
    modules = [module for module in part.modules if importlib.util.find_spec(module) is None]
    if modules:
        lacking = lacking or f"the packages {', '.join(modules)} are not installed"
    if part.cuda_only and options.device != "cuda":
        lacking = lacking or "only a GPU can answer it"
    if left_s < _LEAST_S:
        lacking = lacking or "no time was left"
    if lacking:
        return [Result("gpu", part.asks, "", not_run=lacking)]
    print(f"{name}: {part.asks}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-gpu-"))
    results = folder / "results.jsonl"
    results.touch()
    try:
        ending = ended(name, options, folder, log, min(options.slack * part.bound_s, left_s))
        found = [Result.from_dict(json.loads(line)) for line in results.read_text().splitlines()]
        return [*found, *([Result("gpu", part.asks, "", not_run=ending)] if ending else [])]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ended(name: str, options: argparse.Namespace, folder: Path, log: Path, bound_s: float) -> str:
    """Run a part to its end; what it could not report, empty where it did all."""
    tiny = ["--tiny"] if options.tiny else []
    command = [sys.executable, __file__, "--part", name, "--folder", str(folder), *tiny]
    environment = {**os.environ, RESULTS_VARIABLE: str(folder / "results.jsonl")}
    with log.open("a+b") as output:
        begin = output.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [*command, "--device", options.device],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(bound_s)
        except subprocess.TimeoutExpired:
            return f"failed: ended after {bound_s:.0f} s"
        finally:
            end_session(process)
            end_processes_in(folder)
        output.seek(begin)
        lines = output.read().decode(errors="replace").strip().splitlines() or ["no output"]
    print("\n".join(lines[-12:]), flush=True)
    if code == 0:
        return ""
    return lines[-1] if code == _LACKING else f"failed: {lines[-1]}"


def end_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_part(part: Part, options: argparse.Namespace) -> int:
    """In a process of its own: report the part's lines; the exit code."""
    bench = Benchmark("gpu", {}, turns=1)
    try:
        part.run(Setting(bench, options.device, options.tiny, options.folder, nanogpt_folder()))
    except LackingError as error:
        print(error)
        return _LACKING
    except Exception as error:  # whatever a part meets, the next one is run
        traceback.print_exc(file=sys.stdout)
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        return 1
    return 0


def write(path: Path, results: Sequence[Result]) -> None:
    about = (__doc__ or "").partition("\n")[0]
    kept = document(path.name, about, machine_shape(), results)
    path.with_suffix(".json").write_text(kept)
    path.with_suffix(".md").write_text(section(json.loads(kept)))


if __name__ == "__main__":
    sys.exit(main())

"""What only a GPU can answer: speed, checkpoints, precisions, recovery, telemetry, frameworks.

    python3 tests/benchmarks/gpu.py [FOLDER] [--kind bench|test] [--parts speed,resume] [--within S]

It needs PyTorch and nothing else: no installation of this project, no network. Each part is a
process of its own with a bound in time; what one of them lacks or fails at changes no other. Those
that measure, or use the whole GPU, run alone one after another; then the others beside one another.
TRAINMASTER_NANOGPT names the folder of nanoGPT, the peer. After every part FOLDER (else $OUT, else
./gpu-results) holds the results as gpu.json and gpu.md (with --kind: gpu-test, gpu-bench), and the
output as gpu.log. To record them, copy gpu.json to tests/benchmarks/results and run `make docs`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
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
    "checkpoint": Part("bench", "stall of a checkpoint", paths.measure_checkpoints, 60, alone=True),
    "telemetry": Part("test", "telemetry", paths.watch_telemetry, 75, cuda_only=True, alone=True),
    "oom": Part(
        "test",
        "an out-of-memory repaired",
        paths.repair_out_of_memory,
        110,
        cuda_only=True,
        alone=True,
    ),
    "speed": Part("bench", "speed against nanoGPT", speed.compare_loops, 330, alone=True),
    "fp8": Part("test", "the loss in fp8", paths.check_fp8_loss, 60, cuda_only=True),
    "resume": Part("test", "resuming bit for bit", paths.resume_bit_for_bit, 200),
    "profile": Part("test", "a profile on request", paths.profile_steps, 120),
    "precision": Part("test", "precisions, torch.compile", paths.train_in_each_precision, 200),
    "hf": Part("test", "hf", frameworks.train_hf, 150, ("transformers", "accelerate")),
    "trl-lora": Part("test", "trl, sft, lora", frameworks.train_trl, 150, _TRL),
    "trl-nf4": Part(
        "test",
        "trl, sft, lora, nf4",
        frameworks.train_trl_nf4,
        150,
        (*_TRL, "bitsandbytes"),
        cuda_only=True,
    ),
    "litgpt": Part("test", "litgpt, pretrain", frameworks.train_litgpt, 150, ("litgpt",)),
    "litgpt-lora": Part("test", "litgpt, lora", frameworks.train_litgpt_lora, 150, ("litgpt",)),
    "litgpt-nf4": Part(
        "test",
        "litgpt, lora, nf4",
        frameworks.train_litgpt_nf4,
        150,
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
    found: dict[str, list[Result]] = {}
    for part, ran in run_parts(chosen(options), options, lacking):
        print(f"{part}: {PARTS[part].asks}\n{ran.end_of_output()}", flush=True)
        with log.open("a") as file:
            file.write(ran.output)
        found[part] = ran.results or [nothing_of(part)]
        results = [result for part in chosen(options) for result in found.get(part, [])]
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


@dataclass(frozen=True, slots=True)
class Ran:
    """What a part reported, and its output."""

    results: list[Result]
    output: str = ""

    def end_of_output(self) -> str:
        return "\n".join(self.output.strip().splitlines()[-12:])


def nothing_of(part: str, why: str = "it reported nothing") -> Result:
    return Result("gpu", PARTS[part].asks, "", not_run=why)


def run_parts(
    names: Sequence[str], options: argparse.Namespace, lacking: str
) -> Iterator[tuple[str, Ran]]:
    """Each part as it ends: first those that run alone, then the others beside one another."""
    deadline_s = time.monotonic() + options.within
    for name in names:
        if PARTS[name].alone:
            yield name, run_bounded(name, options, deadline_s, lacking)
    others = [name for name in names if not PARTS[name].alone]
    with ThreadPoolExecutor(max(1, len(others))) as threads:
        running = {
            threads.submit(run_bounded, name, options, deadline_s, lacking): name for name in others
        }
        for ended in as_completed(running):
            yield running[ended], ended.result()


def run_bounded(name: str, options: argparse.Namespace, deadline_s: float, lacking: str) -> Ran:
    """A part by a process of its own, whatever becomes of that."""
    part, left_s = PARTS[name], deadline_s - time.monotonic()
    lacking = lacking or lack_of(part, options.device)
    if left_s < _LEAST_S:
        lacking = lacking or "no time was left"
    if lacking:
        return Ran([nothing_of(name, lacking)])
    bound_s = min(options.slack * part.bound_s, left_s)
    with tempfile.TemporaryDirectory(prefix="trainmaster-gpu-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        results, output = folder / "results.jsonl", folder / "output.log"
        results.touch()
        code = exit_code_of(name, options, folder, bound_s)
        text = output.read_text(errors="replace")
        found = [Result.from_dict(json.loads(line)) for line in results.read_text().splitlines()]
    last = (text.strip().splitlines() or ["no output"])[-1]
    if code is None:
        found.append(nothing_of(name, f"failed: ended after {bound_s:.0f} s"))
    elif code != 0:
        found.append(nothing_of(name, last if code == _LACKING else f"failed: {last}"))
    return Ran(found, text)


def lack_of(part: Part, device: str) -> str:
    """What keeps this part alone from running here; empty where nothing does."""
    missing = [module for module in part.modules if importlib.util.find_spec(module) is None]
    if missing:
        return f"the packages {', '.join(missing)} are not installed"
    return "only a GPU can answer it" if part.cuda_only and device != "cuda" else ""


def exit_code_of(
    name: str, options: argparse.Namespace, folder: Path, bound_s: float
) -> int | None:
    """Run a part to its end, its output beside its results; None: it took too long."""
    command = [sys.executable, __file__, "--part", name, "--folder", str(folder)]
    command += ["--device", options.device, *(["--tiny"] if options.tiny else [])]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, RESULTS_VARIABLE: str(folder / "results.jsonl")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(bound_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_session(process)
        end_processes_in(folder)


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

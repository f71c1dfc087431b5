"""From the command to the first step of a small model: `trainmaster launch` and nanoGPT's train.py.

TRAINMASTER_NANOGPT names the folder of nanoGPT. Each launch is one of a home that has launched
before: a host checks its PyTorch once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, run_benchmark
from support.benchmarks.nanogpt import nanogpt_folder, start_nanogpt, write_tokens
from support.benchmarks.result import of_peers_time
from support.runs.running_run import kill_processes, write_corpus

_WITHIN_S = 60.0
_SIZES = {"n_layer": 4, "n_head": 4, "d_model": 128}
_SEQ_LEN, _MICRO_BATCH = 64, 12
_VOCABULARY = 320
_SPEC = f"""\
name: start
framework: nanogpt
model: {json.dumps(_SIZES)}
data: {{sources: [{{name: main, path: CORPUS}}], seq_len: {_SEQ_LEN}}}
batch: {{tokens: {_SEQ_LEN * _MICRO_BATCH}}}
steps: 1000000
eval: {{every_steps: 1000000}}
"""


def measure(bench: Benchmark) -> None:
    nanogpt = nanogpt_folder()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "spec.yaml")
        spec.write_text(_SPEC.replace("CORPUS", str(write_corpus(Path(folder, "corpus")))))
        homes = {"ours": None, **({"before": bench.before} if bench.before else {})}
        sides = {side: Launch(Path(folder, side), spec, of) for side, of in homes.items()}
        for side in sides.values():
            side()  # the first of a home
        peer = NanoGpt(nanogpt, Path(folder, "nanogpt")) if nanogpt else None
        bench.compare(
            "launch → first step, 4 layers / 128",
            "s",
            ours=sides["ours"],
            peer=("nanoGPT's train.py", peer) if peer else None,
            before=sides.get("before"),
            goal=of_peers_time(1.3) if peer else None,
            note="" if peer else "TRAINMASTER_NANOGPT names no peer",
        )


class Launch:
    """`trainmaster launch` in a home of its own, of a checkout if one is named."""

    def __init__(self, home: Path, spec: Path, checkout: Path | None) -> None:
        self._home, self._spec = home, spec
        self._environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if checkout is not None:
            paths = (checkout / "server", checkout)
            self._environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))

    def __call__(self) -> float:
        """Seconds until the time that the first step's event bears."""
        started = time.time()
        command = [sys.executable, "-m", "trainmaster", "launch", str(self._spec), "--json"]
        # Elsewhere than in a checkout, whose packages would come first.
        self._home.mkdir(parents=True, exist_ok=True)
        answer = subprocess.run(
            command,
            env=self._environment,
            cwd=self._home,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise RuntimeError(answer.stdout + answer.stderr)
        run = self._home / "local" / "runs" / json.loads(answer.stdout)["run_id"]
        try:
            while (event := _first_step(run)) is None:
                if time.time() - started > _WITHIN_S:
                    raise RuntimeError(f"no step within {_WITHIN_S:.0f} s")
                time.sleep(0.01)
        finally:
            kill_processes(self._home / "local")
            shutil.rmtree(run)
        return float(event["t"]) - started


def _first_step(run: Path) -> dict[str, Any] | None:
    try:
        lines = (run / "attempts/1/events.jsonl").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return None
    return next((event for event in map(json.loads, lines) if event["kind"] == "metric"), None)


class NanoGpt:
    """nanoGPT's train.py on random tokens, as it is, but with one batch for its first evaluation
    and without a compiler."""

    def __init__(self, nanogpt: Path, folder: Path) -> None:
        self._nanogpt, self._folder = nanogpt, folder
        folder.mkdir()
        write_tokens(folder, vocab_size=_VOCABULARY, count=200_000)

    def __call__(self) -> float:
        """Seconds until the line of iteration 0 is there."""
        options = {
            "device": "cpu",
            "compile": False,
            "n_layer": _SIZES["n_layer"],
            "n_head": _SIZES["n_head"],
            "n_embd": _SIZES["d_model"],
            "block_size": _SEQ_LEN,
            "batch_size": _MICRO_BATCH,
            "gradient_accumulation_steps": 1,
            "eval_iters": 1,
            "max_iters": 1,
        }
        started = time.monotonic()
        with start_nanogpt(self._nanogpt, self._folder, _VOCABULARY, options) as lines:
            return next(line.at_s for line in lines if line.iteration == 0) - started


if __name__ == "__main__":
    run_benchmark(measure)

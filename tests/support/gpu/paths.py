"""What only a GPU runs, in short trainings: precisions, compilation, checkpoints, telemetry."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from typing import Any

from support.benchmarks.result import at_least, at_most, of_peers_time
from support.gpu.part import LackingError, Setting
from support.gpu.runs import Run, base_config
from support.host.run_configs import model_of

from trainer_runtime.core.protocol.profile import PROFILE_REQUEST, ProfileRequest

_STEPS = 30
# precision, compiled, style of the model, whether the output layer computes in fp8
_PATHS = (
    ("bf16", False, "gpt2", False),
    ("bf16", True, "gpt2", False),
    ("bf16", False, "llama", True),
    ("bf16", True, "gpt2", True),
    ("fp16", False, "gpt2", False),
    ("fp16", True, "llama", False),
    ("fp32", False, "llama", False),
)


def train_in_each_precision(setting: Setting) -> None:
    """Short trainings beside one another: each completes, and its loss falls."""
    paths = _PATHS if setting.device == "cuda" else _PATHS[:1]
    runs = {path: _begun(setting, *path) for path in paths}
    for (precision, compiled, style, fp8), run in runs.items():
        name = f"{style}, {precision}{', fp8 lm_head' if fp8 else ''}"
        name += f"{', compiled' if compiled else ''}: fall of the loss"
        try:
            losses = run.completed().values("loss")
            fall = losses[1][0] - losses[_STEPS][0]
            setting.bench.report(name, "nats", ours=[fall], goal=at_least(0.5))
        except RuntimeError as error:
            setting.bench.not_run(name, f"it failed: {error}")
        finally:
            run.end()


def _begun(setting: Setting, precision: str, compiled: bool, style: str, fp8: bool) -> Run:
    config = base_config(
        setting,
        "nanogpt",
        precision=precision,
        compute__compile=compiled,
        compute__fp8_lm_head=fp8,
        steps=_STEPS,
    )
    config["model"]["style"] = style
    config["optimizer"]["lr"] = 3e-3
    name = f"{style}-{precision}{'-fp8' if fp8 else ''}{'-compiled' if compiled else ''}"
    return Run(setting, name, f"nanogpt_{style}", config).start()


def check_fp8_loss(setting: Setting) -> None:
    """The GPU's kernels beside PyTorch's own operators on the CPU, with rows and columns that fill
    no tile."""
    import torch

    from trainer_runtime.train.attempt.fp8_lm_head import loss_and_gradient, refuse_without_fp8

    device = torch.device(setting.device)
    refuse_without_fp8(device, width=16)
    torch.manual_seed(7)
    rows, known, width, vocabulary = 1_040, 1_029, 50_304, 50_293
    logits = (4 * torch.randn(rows, width)).bfloat16()
    targets = torch.randint(0, vocabulary, (known,))
    expected = loss_and_gradient(logits, targets, vocabulary)
    found = loss_and_gradient(logits.to(device), targets.to(device), vocabulary)
    farthest = (found[0].cpu() - expected[0]).abs().max().item()
    setting.bench.report(
        "fp8 lm_head: losses of rows", "apart", ours=[farthest], goal=at_most(1e-4)
    )
    for name, one, other in zip(("rows", "columns"), found[1:], expected[1:], strict=True):
        alike = (one.cpu().float() == other.float()).float().mean().item()
        line = f"fp8 lm_head: equal derivatives, by {name}"
        setting.bench.report(line, "of all", ours=[alike], goal=at_least(0.999))


def measure_checkpoints(setting: Setting) -> None:
    """How long a loop of GPT-2 124M stands still for a warm save, against torch.save and fsync."""
    import torch

    from trainer_runtime.train.attempt.events import EventLog
    from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints
    from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore, Origin
    from trainer_runtime.train.checkpoints.restore import MODEL, OPTIMIZER
    from trainer_runtime.train.checkpoints.retention import Retention

    size = 30_000 if setting.tiny else 124_000_000
    part = {f"w{n}": torch.randn(size // 30, device=setting.device) for n in range(30)}
    moments = {f"{key}/{name}": tensor.clone() for key in "mv" for name, tensor in part.items()}
    tensors = {MODEL: part, OPTIMIZER: moments}
    events = EventLog(setting.folder / "events.jsonl")
    store = CheckpointStore(
        setting.folder / "checkpoints", Origin(1, "", 0), Retention(1, 0, None, "val_loss"), events
    )
    checkpoints = Checkpoints(store, events)
    checkpoints.allocate(tensors)
    plain, stalls = [], []
    for step in range(1, 4):
        started = _settled(setting)
        checkpoints.save(Checkpoint(step, tensors, {}, {}))
        stalls.append(_settled(setting) - started)
        checkpoints.wait()
        started = _settled(setting)
        with (setting.folder / "plain.pt").open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())
        plain.append(_settled(setting) - started)
    checkpoints.close()
    setting.bench.report(
        "checkpoint of 124M parameters: the loop stands still",
        "s",
        ours=stalls,
        peer=("torch.save + fsync", plain),
        goal=of_peers_time(0.05),
    )


def _settled(setting: Setting) -> float:
    """The time once the device has nothing to do."""
    import torch

    if setting.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def profile_steps(setting: Setting) -> None:
    """A profile on request: what it says of the GPU, and that no loss differs by it."""
    config = base_config(setting, "nanogpt", steps=_STEPS)
    plain, profiled = (Run(setting, name, "nanogpt_gpt2", config) for name in ("plain", "profiled"))
    request = ProfileRequest("gpu", attempt=1, keeps_trace=True)
    (profiled.folder / PROFILE_REQUEST).write_text(json.dumps(request.to_dict()))
    try:
        losses = plain.start().completed().values("loss")
        again = profiled.start().completed().values("loss")
        alike = sum(again[step] == loss for step, loss in losses.items())
        profile = next(event for event in profiled.events() if event["kind"] == "profile")
    finally:
        plain.end()
        profiled.end()
    bench = setting.bench
    bench.report("profile: steps with the same loss", "", ours=[alike], goal=at_least(_STEPS))
    if profile.get("problem") is not None:
        bench.not_run("profile: what it measured", f"it failed: {profile['problem']}")
        return
    bench.report("profile: steps", "steps", ours=[profile["steps"]], goal=at_least(10))
    bench.report("profile: later by it", "s", ours=[profile["added_s"]], goal=at_most(30))
    spent = profile["gpu"] or profile["host"]
    parts = sum(spent.get(part, 0.0) for part in ("forward", "backward", "optimizer", "other"))
    rest = spent.get("idle", 0.0) + spent.get("outside", 0.0) + spent.get("data", 0.0)
    bench.report(
        "profile: time accounted for", "of a step", ours=[parts + rest], goal=at_least(0.9)
    )
    if setting.device == "cuda":
        kernels = profile["kernels"]
        bench.report("profile: kernels", "a step", ours=[kernels["per_step"]], goal=at_least(100))
        bench.report("profile: a kernel", "µs", ours=[kernels["median_us"]], goal=at_least(0.5))


def watch_telemetry(setting: Setting) -> None:
    """What the supervisor samples of the GPU while it trains, beside nvidia-smi's own answer."""
    config = base_config(setting, "nanogpt", steps=10**6, checkpoint__every="10m")
    run = Run(setting, "telemetry", "nanogpt_gpt2", config).start()
    try:
        run.wait(lambda: run.values("loss"), "the first step")
        sampled = run.wait(lambda: _gpu_samples(run)[1:], "two samples of the GPU")[-1]
        used_gib = _used_gib()
    finally:
        run.end()
    keys = [f"gpu_{name}" for name in ("util", "mem_gib", "power_w", "temp_c", "clock_mhz")]
    there = [key for key in keys if key in sampled]
    bench = setting.bench
    bench.report("telemetry: values of the GPU", "values", ours=[len(there)], goal=at_least(5))
    bench.report("telemetry: use of the GPU", "%", ours=[sampled["gpu_util"]], goal=at_least(5))
    share = sampled["gpu_mem_gib"] / used_gib
    bench.report(
        "telemetry: memory, as a share of nvidia-smi's own answer",
        "",
        ours=[share],
        goal=at_least(0.9),
    )


def _gpu_samples(run: Run) -> list[dict[str, Any]]:
    samples = [event["values"] for event in run.journal() if event["kind"] == "sample"]
    return [values for values in samples if values.get("gpu_util")]


def _used_gib() -> float:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.check_output(query, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise LackingError(f"nvidia-smi does not answer: {error}") from None
    return statistics.mean(float(line) / 1024 for line in answer.splitlines())


def resume_bit_for_bit(setting: Setting) -> None:
    """A run whose trainer is killed, beside two that are not: its losses equal theirs.

    Compiled, and of the length from which attention's fused backward pass adds in pieces.
    """
    steps, every = (40, 10) if setting.tiny else (400, 100)
    config = base_config(
        setting,
        "nanogpt",
        steps=steps,
        checkpoint__every=every,
        model__dropout=0.1,
        compute__compile=not setting.tiny,
        seq_len=None if setting.tiny else 1024,
    )
    runs = {
        name: Run(setting, name, "nanogpt_gpt2", config).start()
        for name in ("straight", "again", "killed")
    }
    killed = runs["killed"]
    try:
        killed.wait(lambda: max(killed.values("loss"), default=0) >= 1.5 * every, "its steps")
        killed.kill_trainer()
        curves = {name: run.completed().values("loss", "grad_norm") for name, run in runs.items()}
        resumed = killed.events(killed.attempts)[0]["resumed_from"] if killed.attempts > 1 else None
    finally:
        for run in runs.values():
            run.end()
    if not resumed:
        raise LackingError("the training had ended before it could be killed")
    for name, what in (("again", "two runs"), ("killed", "killed and resumed")):
        equal = sum(curves[name].get(step) == values for step, values in curves["straight"].items())
        line = f"{what}: equal losses and norms"
        setting.bench.report(line, "steps", ours=[equal], goal=at_least(steps))


def repair_out_of_memory(setting: Setting) -> None:
    """A micro-batch far beyond the GPU's memory: the supervisor halves it until it fits."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    vocabulary, seq_len = 50_304, 1024
    # Logits take twice as much and more: of this many sequences they can't fit.
    micro_batch = 1 << (total // (2 * 4 * vocabulary * seq_len)).bit_length()
    torch.cuda.empty_cache()
    config = base_config(
        setting,
        "nanogpt",
        model=model_of({"n_layer": 1, "n_head": 2, "d_model": 64}, vocabulary),
        batch={"tokens": micro_batch * seq_len, "micro_batch": micro_batch, "accumulation": 1},
        steps=3,
        recovery__max_restarts=8,
        seq_len=seq_len,
    )
    run = Run(setting, "out-of-memory", "nanogpt_gpt2", config).start()
    try:
        run.completed()
        codes = [one["finding"]["code"] for one in run.journal() if one["kind"] == "finding"]
    finally:
        run.end()
    setting.bench.report(
        "out of memory: restarts until it fits",
        "restarts",
        ours=[run.attempts - 1],
        goal=at_most(5),
        note=f"from {micro_batch} sequences of {seq_len}; findings: {', '.join(map(str, codes))}",
    )

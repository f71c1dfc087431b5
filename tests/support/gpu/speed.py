"""GPT-2 124M by the real launch and by nanoGPT's own train.py, on the same tokens."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from support.benchmarks.nanogpt import VARIABLE, start_nanogpt, write_tokens
from support.benchmarks.result import at_least, times_as_fast
from support.gpu.part import Setting
from support.gpu.runs import Run, base_config
from support.host.run_configs import Config, model_of

from trainer_runtime.core.environment.gpus import find_gpu

_TOKENS = "synthetic"
_EVERY = 5  # steps between two readings of the clock
_PEER_S = 150.0
_PEER = "nanoGPT's train.py"


@dataclass(frozen=True, slots=True)
class Way:
    """A setting of ours, as its line says it."""

    says: str
    deterministic: bool
    fp8: bool


PLANNED = Way("", deterministic=True, fp8=False)
FREE = Way(", deterministic off", deterministic=False, fp8=False)
FASTEST = Way(", deterministic off, fp8_lm_head", deterministic=False, fp8=True)


def compare_loops(setting: Setting) -> None:
    """Both sides compiled, at a large micro-batch, then at nanoGPT's own; the first steps, with
    compilation and our first checkpoint, are left out. What is planned by itself, too, at the
    large one. What matters most comes first, since a part may be ended."""
    tokens = prepare_tokens(setting)
    fastest = FASTEST if setting.device == "cuda" else FREE
    pairs = [(2, fastest), (2, PLANNED)]
    if not setting.tiny:
        pairs = [(64, fastest), (64, PLANNED), (12, fastest)]
    peers: dict[int, list[float]] = {}
    ours: list[list[float]] = []
    for micro_batch, way in pairs:
        if micro_batch not in peers:
            peers[micro_batch] = time_nanogpt(setting, tokens, micro_batch)
        name = f"{_model(setting)}, micro-batch {micro_batch}{way.says}"
        try:
            found, note = time_ours(setting, micro_batch, way)
        except RuntimeError as error:
            setting.bench.not_run(name, f"it failed: {error}")
            continue
        report_mfu(setting, f"{name}: MFU", statistics.median(found))
        report(setting, name, found, peers[micro_batch], note)
        ours.append(found)
    best_peer = max(filter(None, peers.values()), key=statistics.median, default=[])
    best = max(ours, key=statistics.median, default=[])
    report(setting, f"{_model(setting)}, best against best", best, best_peer, "")


def report(setting: Setting, name: str, ours: list[float], peer: list[float], note: str) -> None:
    if peer:
        bench, goal = setting.bench, times_as_fast(1.15)
        bench.report(name, "tokens/s", ours=ours, peer=(_PEER, peer), goal=goal, note=note)
        return
    lacking = f"{VARIABLE} names no nanoGPT" if setting.nanogpt is None else "it failed"
    setting.bench.report(name, "tokens/s", ours=ours, note=f"without the peer: {lacking}")


def report_mfu(setting: Setting, line: str, tokens_per_s: float) -> None:
    """6 N + 12 L d T floating-point operations for each token, N without the positions."""
    peak_flops = _peak_flops(setting)
    if peak_flops is None:
        setting.bench.not_run(line, "the device's peak is not known")
        return
    size, seq_len = _size(setting)
    width, layers = size["d_model"], size["n_layer"]
    parameters = _vocabulary(setting) * width + 12 * layers * width**2
    flops = 6 * parameters + 12 * layers * width * seq_len
    share = tokens_per_s * flops / peak_flops
    setting.bench.report(line, "of the peak", ours=[share], goal=at_least(0.45))


def _peak_flops(setting: Setting) -> float | None:
    """Per second, by the data sheet."""
    if setting.device == "cpu":
        return None
    import torch

    gpu = find_gpu(torch.cuda.get_device_name())
    return None if gpu is None else gpu.peak_flops


def time_ours(setting: Setting, micro_batch: int, way: Way) -> tuple[list[float], str]:
    """Tokens per second between readings of a run with its checkpoints, and its losses."""
    first, last = _steps(setting)
    config = _config(setting, micro_batch, way)
    name = f"speed{micro_batch}{'' if way.deterministic else '-free'}{'-fp8' if way.fp8 else ''}"
    run = Run(setting, name, "nanogpt_gpt2", config).start()
    try:
        run.wait(lambda: last in run.values("loss"), f"step {last}", 280)
        events = [event for event in run.events() if event["kind"] == "metric"]
    finally:
        run.end()
    at_s = {event["step"]: event["t"] for event in events}
    losses = {event["step"]: event["values"]["loss"] for event in events}
    return _rates(
        at_s, first, last, _tokens_per_step(setting)
    ), f"ours: loss {losses[last]:.3f} at step {last}"


def time_nanogpt(setting: Setting, tokens: Path, micro_batch: int) -> list[float]:
    """The same of nanoGPT; nothing where nobody named it, or it fails or takes too long, which is
    printed."""
    if setting.nanogpt is None:
        return []
    (size, seq_len), (first, last) = _size(setting), _steps(setting)
    options = {
        "device": setting.device,
        "dtype": "bfloat16",
        "compile": not setting.tiny,
        "n_layer": size["n_layer"],
        "n_head": size["n_head"],
        "n_embd": size["d_model"],
        "block_size": seq_len,
        "batch_size": micro_batch,
        "gradient_accumulation_steps": _sequences(setting) // micro_batch,
        "max_iters": last,
        "learning_rate": 6e-4,
        "decay_lr": False,
        "eval_interval": 10**6,
        "eval_iters": 1,
        "log_interval": _EVERY,
    }
    at_s: dict[int, float] = {}
    text, deadline_s = "", time.monotonic() + _PEER_S
    with start_nanogpt(setting.nanogpt, tokens, _vocabulary(setting), options) as lines:
        for line in lines:
            text = line.text
            if line.iteration is not None:
                at_s[line.iteration] = line.at_s
            if line.at_s > deadline_s or last in at_s:
                break
    print(f"nanoGPT, the last line: {text}", flush=True)
    return _rates(at_s, first, last, _tokens_per_step(setting)) if last in at_s else []


def prepare_tokens(setting: Setting) -> Path:
    """Shards of random tokens in the cache of our runs, which nanoGPT reads too."""
    vocabulary = _vocabulary(setting)
    folder = setting.folder / "cache" / "data" / _TOKENS
    folder.mkdir(parents=True)
    count = 20_000 if setting.tiny else 4_000_000
    sizes = write_tokens(folder, vocab_size=vocabulary, count=count)
    source = {split: {"file": f"{split}.bin", "tokens": size} for split, size in sizes.items()}
    meta = {
        "v": 1,
        "fingerprint": _TOKENS,
        "tokenizer": "byte",
        "seq_len": _size(setting)[1],
        "vocab_size": vocabulary,
        "dtype": "uint16",
        "sources": [{"name": "main", "documents": 1, **source}],
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def _config(setting: Setting, micro_batch: int, way: Way) -> Config:
    size, seq_len = _size(setting)
    sequences = _sequences(setting)
    batch = {
        "tokens": sequences * seq_len,
        "micro_batch": micro_batch,
        "accumulation": sequences // micro_batch,
    }
    return base_config(
        setting,
        "nanogpt",
        model=model_of(size, _vocabulary(setting)),
        data__fingerprint=_TOKENS,
        data__seq_len=seq_len,
        batch=batch,
        steps=10**6,
        optimizer__lr=6e-4,
        checkpoint__every="10m",
        checkpoint__every_is_auto=True,
        compute__compile=not setting.tiny,
        compute__deterministic=way.deterministic,
        compute__fp8_lm_head=way.fp8,
    )


def _size(setting: Setting) -> tuple[dict[str, int], int]:
    """The model's sizes and its sequence length."""
    if setting.tiny:
        return {"n_layer": 2, "n_head": 2, "d_model": 32}, 32
    return {"n_layer": 12, "n_head": 12, "d_model": 768}, 1024


def _model(setting: Setting) -> str:
    return "a tiny GPT" if setting.tiny else "GPT-2 124M"


def _vocabulary(setting: Setting) -> int:
    return 320 if setting.tiny else 50_304


def _sequences(setting: Setting) -> int:
    """Of one optimizer step, on both sides."""
    return 4 if setting.tiny else 192


def _steps(setting: Setting) -> tuple[int, int]:
    """The first and the last step that are timed; the first `every: auto` save is before them."""
    return (20, 30) if setting.tiny else (25, 50)


def _tokens_per_step(setting: Setting) -> int:
    return _sequences(setting) * _size(setting)[1]


def _rates(at_s: dict[int, float], first: int, last: int, tokens: int) -> list[float]:
    """Tokens per second of each stretch of `_EVERY` steps."""
    marks = range(first, last + 1, _EVERY)
    return [_EVERY * tokens / (at_s[end] - at_s[start]) for start, end in itertools.pairwise(marks)]

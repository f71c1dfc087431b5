"""A plain, slow reader of logs as an oracle for the parser: one expression per kind of line.

It has no shapes, templates, blocks or inferred steps, and returns (key, value) of every point in
order, nothing else.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable

N = r"([-+]?(?:nan|inf|[\d,]+\.?\d*(?:[eE][-+]?\d+)?))"
PlainPoints = list[tuple[str, float]]

# (expression, its groups' keys and factors); a key of None is a step or unused.
_PLAIN: list[tuple[str, list[tuple[str | None, float]]]] = [
    (rf"iter \d+: loss {N}, time {N}ms, mfu {N}%",
     [("loss", 1), ("step_time_s", 1e-3), ("mfu", 0.01)]),
    (rf"step \d+: train loss {N}, val loss {N}", [("train_loss_eval", 1), ("val_loss", 1)]),
    (rf"Step \d+ \| Validation bpb: {N}", [("val_bpb", 1)]),
    (rf"Step \d+ \| CORE metric: {N}", [("core_metric", 1)]),
    (rf"Step \d+/\d+ \| Average reward: {N} \| Average sequence length: {N}",
     [("reward", 1), ("sequence_length", 1)]),
    (rf"step \d+(?:/\d+)? \([\d.]+%\) \| loss: {N} \| lrm: {N} \| dt: {N}ms \| tok/sec: {N}"
     rf" \| (?:bf16_)?mfu: {N} \| epoch: {N}(?: pq: {N} rg: {N})? \| total time: {N}m",
     [("loss", 1), ("lrm", 1), ("step_time_s", 1e-3), ("tokens_per_s", 1), ("mfu", 0.01),
      ("epoch", 1), ("pq", 1), ("rg", 1), ("total_time_s", 60)]),
    (rf"^[Pp]eak memory (?:usage|consumption): {N} ?MiB", [("peak_memory_gib", 1 / 1024)]),
    (rf"s:\d+ tel:{N}", [("val_loss", 1)]),
    (rf"s:\d+ trl:{N}(?: lr:{N} norm:{N})?", [("loss", 1), ("lr", 1), ("grad_norm", 1)]),
    (rf"step:\d+/\d+ (?:train_loss:{N} |val_loss:{N} )?train_time:{N}ms(?: step_avg:{N}ms)?",
     [("loss", 1), ("val_loss", 1), ("train_time_s", 1e-3), ("step_time_s", 1e-3)]),
    (rf"Epoch {N} \| iter \d+ step \d+ \| loss train: {N}, val: \S+ \| iter time: {N} ms",
     [("epoch", 1), ("loss", 1), ("micro_step_time_s", 1e-3)]),
    (rf"iter \d+: val loss {N}, val time: {N} ms", [("val_loss", 1), ("val_time_s", 1e-3)]),
    (rf"Final evaluation \| val loss: {N} \| val ppl: {N}",
     [("val_loss", 1), ("val_perplexity", 1)]),
    (rf"(?<!validate )step: *\d+  loss: *{N}  grad_norm: *{N}  memory: *{N}GiB\([\d.]+%\)  tps: {N}"
     rf"  tflops: {N}  mfu: (?:{N}%|N/A)",
     [("loss", 1), ("grad_norm", 1), ("peak_memory_gib", 1), ("tokens_per_s", 1), ("tflops", 1),
      ("mfu", 0.01)]),
    (rf"validate step: *\d+  loss: *{N}  memory: *{N}GiB\([\d.]+%\)  tps: {N}",
     [("val_loss", 1), ("peak_memory_gib", 1), ("val_tokens_per_s", 1)]),
    (rf"validation loss at iteration \d+ \| lm loss value: {N} \| lm loss PPL: {N}",
     [("val_loss", 1), ("val_perplexity", 1)]),
    (rf"\[Rank \d+\] \(after \d+ iterations\) memory \(MB\) \| allocated: {N}"
     rf"(?: \| max allocated: {N})?(?: \| reserved: {N})?(?: \| max reserved: {N})?",
     [("memory_allocated_gib", 1 / 1024), ("peak_memory_gib", 1 / 1024),
      ("memory_reserved_gib", 1 / 1024), ("peak_memory_reserved_gib", 1 / 1024)]),
    (rf"step=\d+, skipped={N}, lr=\[{N}", [("skipped_steps", 1), ("lr", 1)]),
    (rf"/\d+, RunningAvgSamplesPerSec={N}, CurrSamplesPerSec={N}, MemAllocated={N}GB,"
     rf" MaxMemAllocated={N}GB",
     [("samples_per_s_mean", 1), ("samples_per_s", 1), ("memory_allocated_gib", 1),
      ("peak_memory_gib", 1)]),
    (rf"OVERFLOW! Rank 0 Skipping step\. Attempted loss scale: \d+, reducing to {N}",
     [("loss_scale", 1)]),
    (rf"^loss \d+ {N}$", [("loss", 1)]),
    (rf"step=\d+ loss={N}(?: lr={N})? grad_norm={N}(?: lr={N})?(?: tokens_per_sec={N})?",
     [("loss", 1), ("lr", 1), ("grad_norm", 1), ("lr", 1), ("tokens_per_s", 1)]),
    (rf"it/s, v_num=0, train_loss={N}\]", [("loss", 1)]),
    (rf"s/it, loss={N}, lr={N}\]", [("loss", 1), ("lr", 1)]),
    (rf"^Epoch {N}/\d+ +━+ \d+/\d+ .*v_num: ", [("epoch", 1)]),
    (rf"^ {{20,}}train_loss: {N}", [("loss", 1)]),
    (rf"^ {{20,}}val_loss: {N}", [("val_loss", 1)]),
]  # fmt: skip
_COMPILED = [(re.compile(expression), keys) for expression, keys in _PLAIN]

_MEGATRON = re.compile(r"iteration +\d+/ *\d+ \|(.*)")
_MEGATRON_KEYS = {
    "consumed samples": ("samples", 1),
    "elapsed time per iteration (ms)": ("step_time_s", 1e-3),
    "throughput per GPU (TFLOP/s/GPU)": ("tflops", 1),
    "learning rate": ("lr", 1),
    "global batch size": ("global_batch_size", 1),
    "lm loss": ("loss", 1),
    "loss scale": ("loss_scale", 1),
    "grad norm": ("grad_norm", 1),
    "num zeros": ("num_zeros", 1),
    "params norm": ("params_norm", 1),
    "number of skipped iterations": ("skipped_iterations", 1),
    "number of nan iterations": ("nan_count", 1),
}
_MEGATRON_TIMES = re.compile(r"^time \(ms\) \|(.*)")
_WITHOUT_STEP = re.compile(r"^time \(ms\) \||OVERFLOW! Rank")
_DICT = re.compile(r"(on_\w+ \d+ )?(\{['\"](?:loss|eval_loss|train_runtime)['\"].*?\})")
_DICT_KEYS = {
    "eval_loss": "val_loss",
    "learning_rate": "lr",
    "num_input_tokens_seen": "tokens",
    "num_tokens": "tokens",
    "eval_num_tokens": "eval_num_tokens",
    "train_tokens_per_second": "tokens_per_s",
    "memory/max_active (GiB)": "memory/max_active_GiB",
    "memory/max_allocated (GiB)": "memory/max_allocated_GiB",
}
_JSON_KEYS = {"tok_s": "tokens_per_s", "ts": None, "step": None}


def read_plainly(log: bytes) -> PlainPoints:
    """(key, value) of every point, in order."""
    points: PlainPoints = []
    last: tuple[bool, dict[str, float]] | None = None  # HF's last line: whether rounded, its values
    for raw in re.split(rb"[\r\n]", log):
        line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", raw.decode(errors="replace"))
        dictionary = None if line.startswith('{"') else _DICT.search(line)
        if dictionary:
            rounded, values = _dictionary(dictionary[2])
            if last is None or not _again(last, rounded, values):
                points += values.items()
                last = rounded, values
            continue
        if points or not _WITHOUT_STEP.search(line):  # before the first step there is none for them
            points += _json(line) or _megatron(line) or _plain(line)
    return points


def _plain(line: str) -> PlainPoints:
    points: PlainPoints = []
    for expression, keys in _COMPILED:
        for match in expression.finditer(line):
            for text, (key, scale) in zip(match.groups(), keys, strict=True):
                if text is not None and key is not None:
                    value = float(text.replace(",", "")) * scale
                    if not (key == "mfu" and value < 0):  # nanoGPT's word for "not yet"
                        points.append((key, value))
    return points


def _megatron(line: str) -> PlainPoints:
    times = _MEGATRON_TIMES.match(line)
    match = times or _MEGATRON.search(line)
    points: PlainPoints = []
    for part in match[1].split("|") if match else []:
        name, _, number = part.strip().rpartition(":")
        if not name:
            continue
        value = float(number.split("/")[0])
        if times:
            points.append((f"time/{name}_s", value * 1e-3))
        else:
            key, scale = _MEGATRON_KEYS[name]
            points.append((key, value * scale))
    return points


def _json(line: str) -> PlainPoints:
    try:
        event = json.loads(line)
    except ValueError:
        return []
    if not isinstance(event, dict) or "step" not in event:
        return []
    if "kind" in event:
        return list(event["values"].items())
    flat: PlainPoints = []
    _flatten(event, flat)
    return flat


def _flatten(record: dict[str, object], flat: PlainPoints) -> None:
    for name, value in record.items():
        key = _JSON_KEYS.get(name, name)
        if isinstance(value, dict):
            _flatten(value, flat)
        elif isinstance(value, int | float) and key is not None:
            flat.append(({"acc": "accuracy"}.get(key, key), float(value)))


def _dictionary(text: str) -> tuple[bool, dict[str, float]]:
    read: Callable[[str], dict[str, object]] = json.loads if text[1] == '"' else ast.literal_eval
    record = read(re.sub(r"(?<=: )nan", "'nan'", text) if text[1] != '"' else text)
    values, rounded = {}, False
    for name, value in record.items():
        key = _DICT_KEYS.get(name, name)
        if "train_runtime" in record and "train_loss" in record:
            key = {"train_loss": "train_loss_mean"}.get(name, key)
        values[key] = float(value)  # type: ignore[arg-type]
        rounded = rounded or (isinstance(value, str) and value != "nan") or "'nan'" in text
    if values.get("loss") == 0 and math.isnan(values.get("grad_norm", 0.0)):
        values["loss"] = math.nan
    return rounded, values


def _again(last: tuple[bool, dict[str, float]], rounded: bool, values: dict[str, float]) -> bool:
    before, old = last
    if before == rounded:
        return repr(old) == repr(values)
    common = old.keys() & values.keys()
    if len(common) < min(len(old), len(values)):
        return False
    return all(
        math.isclose(old[key], values[key], rel_tol=1e-3, abs_tol=5e-5)
        or (math.isnan(old[key]) and math.isnan(values[key]))
        for key in common
    )

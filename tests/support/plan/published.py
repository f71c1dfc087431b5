"""Published trainings beside what is estimated for them.

Run as a program, it prints the errors by family: `python -m support.plan.published` in tests/.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainer_runtime.core.environment.gpus import find_gpu
from trainmaster.plan.architecture import Architecture, flops_per_token, parameters
from trainmaster.plan.decisions.memory import (
    ADAM_BYTES,
    FRAGMENTS,
    GIB,
    Load,
    Memory,
    Sharing,
    memory,
)
from trainmaster.plan.decisions.throughput import Step, modelled_mfu

Row = Mapping[str, str]

_FOLDER = Path(__file__).parents[2] / "plan/published"
_UNITS = {"GiB": float(GIB), "GB": 1e9}
# Bytes for each parameter of a frozen base beside its embeddings, by how it is held; and of one
# that is trained in half precision throughout, with Adam.
_BASES = {"lora": 2.0, "nf4": 0.5625, "nf4-dq": 4.127 / 8}
_HALF_BYTES = 8


def rows(name: str) -> tuple[Row, ...]:
    """Those of a table, with the sizes of each row's model."""
    models = {row["model"]: row for row in _table("models")}
    return tuple({**models[row["model"]], **row} for row in _table(name))


def shape(model: str) -> Row:
    """The sizes of a model."""
    return next(row for row in _table("models") if row["model"] == model)


def _table(name: str) -> Iterator[dict[str, str]]:
    with (_FOLDER / f"{name}.csv").open() as lines:
        yield from csv.DictReader(lines)


def architecture(row: Row) -> Architecture:
    sizes = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "vocab_size", "seq_len")
    style = "gpt2" if row["style"] == "gpt2" else "llama"
    return Architecture(style, *(int(row[name]) for name in sizes), tied=row["tied"] == "1")


def sharing(row: Row) -> Sharing:
    return Sharing(
        row["strategy"],
        int(row["gpus"]),
        recompute=row["recompute"] == "full",
        selective=row["recompute"] == "selective",
        tensor=int(row["tensor"]),
        context=int(row["context"]),
    )


def estimated_memory(row: Row) -> Memory:
    """By the planner's formulas, for the state that the row names."""
    model = architecture(row)
    count = int(row["parameters"] or parameters(model))
    trained, frozen = count, 0.0
    if row["state"] == "half":
        trained, frozen = 0, float(count * _HALF_BYTES)
    elif row["state"] in _BASES:
        trained = int(row["trained"])
        embeddings = model.embeddings * model.vocab_size * model.d_model
        frozen = embeddings * 2.0 + (count - embeddings) * _BASES[row["state"]]
    at_once = int(row["logits_at_once"]) if row["logits_at_once"] else None
    load = Load(
        model,
        trained,
        frozen,
        optimizer_bytes=ADAM_BYTES,
        logits_at_once=at_once,
        compiled=row["compiled"] == "1",
        quantized=row["state"].startswith("nf4"),
        quantized_output=row["state"].startswith("nf4"),
    )
    return memory(load, int(row["micro_batch"]), "bf16", "cuda", sharing(row))


def published_gib(row: Row) -> float:
    """The published peak, with what it leaves out of a process's: the CUDA context where it is
    PyTorch's own figure, and the allocator's fragments where it is of allocated tensors."""
    estimate = estimated_memory(row)
    peak = float(row["peak"]) * _UNITS[row["unit"]] / GIB
    if row["measure"] == "allocated":
        peak *= FRAGMENTS
    return peak + (0.0 if row["measure"] == "total" else estimate.context_gib)


def memory_error(row: Row) -> float:
    """Of the estimate, as a share of the published peak."""
    return estimated_memory(row).total_gib / published_gib(row) - 1


def throughput_error(row: Row) -> float:
    """Of the estimate, as a share of the published tokens per second of one GPU."""
    model, gpu = architecture(row), find_gpu(row["gpu"])
    assert gpu is not None
    step = Step(
        sharing(row),
        int(row["micro_batch"]) * model.seq_len,
        row["precision"],
        compiled=row["compiled"] == "1",
        frozen=row["frozen"] == "1",
        adapted=int(row["adapted"] or 0),
    )
    mfu = modelled_mfu(model, gpu, step)
    tokens_per_s = mfu * gpu.peak_flops / flops_per_token(model, frozen=step.frozen)
    return tokens_per_s / float(row["tokens_per_s"]) - 1


def summary(errors: list[float]) -> tuple[float, float]:
    """The median and the 90th percentile of their sizes."""
    sizes = sorted(map(abs, errors))
    return sizes[len(sizes) // 2], sizes[min(len(sizes) - 1, len(sizes) * 9 // 10)]


def by_family(name: str, error: Callable[[Row], float]) -> dict[str, list[float]]:
    families: dict[str, list[float]] = {}
    for row in rows(name):
        families.setdefault(row["family"], []).append(error(row))
    return families


def _print(name: str, error: Callable[[Row], float]) -> None:
    families = by_family(name, error)
    families["all"] = [value for errors in families.values() for value in errors]
    print(f"| {name} | n | median | 90 % | mean |\n|---|---|---|---|---|")
    for family, errors in families.items():
        median, most = summary(errors)
        mean = sum(errors) / len(errors)
        print(f"| {family} | {len(errors)} | {median:.1%} | {most:.1%} | {mean:+.1%} |")


if __name__ == "__main__":
    _print("memory", memory_error)
    _print("throughput", throughput_error)

"""What of the spec is built; everything else is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainmaster.errors import Problem, SpecError
from trainmaster.spec.annotations import Section
from trainmaster.spec.document import TrainingSpec
from trainmaster.spec.validate import shown

Accepts = frozenset[Any] | Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Built:
    """The values of one field (path as in `fields.all_fields`) that are built so far."""

    path: str
    accepts: Accepts
    words: str


def _empty(value: Any) -> bool:
    return value is None or value in ({}, [])


def _number(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _mirror(value: Any) -> bool:
    return value in (None, "operator") or str(value).startswith("host:/")


def _not_built(path: str) -> Built:
    return Built(path, _empty, "nothing yet; leave it out")


def _only(path: str, *values: Any) -> Built:
    return Built(path, frozenset(values), " or ".join(str(value) for value in values))


# What holds for every framework.
BUILT: tuple[Built, ...] = (
    _not_built("batch.ramp"),
    Built("tokens", _number, "a number"),
    _not_built("phases"),
    _only("precision", "auto", "fp32", "bf16", "fp16"),
    Built("checkpoint.mirror", _mirror, "operator, or host:/path for a folder of the box"),
    _only("compute.nodes", 1),
    _only("compute.launcher", "process"),
    _not_built("compute.image"),
    _only("compute.shm_size", "16g"),
    _only("compute.preemptible", False),
    _not_built("limits.budget_usd"),
    Built("host", lambda host: host != "kaggle", "local, debug or the name of a host"),
)

_TEXTS = ("text", "jsonl", "parquet", "arrow", "hf", "tokens")
_ROWS = ("jsonl", "parquet", "arrow", "hf", "preference")
_SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt", "wsd")
_SHARED = ("auto", "single", "ddp", "fsdp", "zero1", "zero2", "zero3", "zero3_offload")

BUILT_BY_FRAMEWORK: dict[str, tuple[Built, ...]] = {
    "nanogpt": (
        _only("method", "auto", "pretrain"),
        _not_built("method_args"),
        _not_built("model.path"),
        _not_built("model.hub"),
        _not_built("adapter"),
        _only("data.sources[].format", "text"),
        _only("data.tokenizer", "auto", "byte"),
        _only("data.prepare", "auto", "box", "here"),
        _only("optimizer.name", "adamw"),
        _only("schedule.kind", *_SCHEDULES),
        _only("compute.gpus", "auto", 0, 1),
        _only("compute.processes", "auto", 1),
        _only("compute.strategy", "auto", "single"),
        _only("compute.activation_checkpointing", "auto", False),
        _not_built("tracking"),
    ),
    "litgpt": (
        _only("method", "auto", "pretrain", "sft"),
        _only("data.sources[].format", *_TEXTS),
        _only("data.prepare", "auto", "box", "here"),
        _only("optimizer.name", "adamw", "adam", "sgd"),
        _only("schedule.kind", "cosine"),
        _only("compute.strategy", "auto", "single", "ddp", "fsdp"),
    ),
    "hf": (
        _only("method", "auto", "pretrain"),
        _not_built("method_args"),
        _only("data.sources[].format", *_TEXTS),
        _only("optimizer.name", "adamw", "adafactor", "sgd"),
        _only("schedule.kind", *_SCHEDULES, "polynomial"),
        _only("compute.strategy", *_SHARED),
    ),
    "trl": (
        _only("method", "auto", "sft", "dpo", "kto", "reward", "grpo"),
        _only("data.sources[].format", *_ROWS),
        _only("data.prepare", "auto", "box"),
        _only("optimizer.name", "adamw", "adafactor", "sgd"),
        _only("schedule.kind", *_SCHEDULES, "polynomial"),
        _only("compute.strategy", *_SHARED),
    ),
}


def refuse_what_is_not_built(spec: TrainingSpec) -> None:
    """Nothing, if every value of the spec is built for its framework.

    Raises:
        SpecError: NOT_YET_SUPPORTED, listing each field that is not.
    """
    problems = [
        Problem(
            "NOT_YET_SUPPORTED",
            path,
            f"`{path}` is {shown(_plain(value))}, which is not built yet{of_framework}.",
            f"`{path}` takes {built.words} for now.",
        )
        for table, of_framework in (
            (BUILT, ""),
            (BUILT_BY_FRAMEWORK[spec.framework], f" for {spec.framework}"),
        )
        for built in table
        for path, value in values_at(spec, built.path)
        if not _is_built(built, value)
    ]
    if problems:
        raise SpecError.listing(problems)


def values_at(spec: Section, path: str) -> Iterator[tuple[str, Any]]:
    """The values that a path of `fields.all_fields` meets in a spec, each with its own path."""
    found: list[tuple[str, Any]] = [("", spec)]
    for part in path.split("."):
        name = part.removesuffix("[]")
        held = [
            (f"{where}.{name}" if where else name, getattr(value, name))
            for where, value in found
            # Where a field may also be a word (`environment: auto`), it has no members then.
            if isinstance(value, Section)
        ]
        if part.endswith("[]"):
            held = [
                (f"{where}[{index}]", item)
                for where, items in held
                for index, item in enumerate(items)
            ]
        found = held
    yield from found


def _is_built(built: Built, value: Any) -> bool:
    if isinstance(built.accepts, frozenset):
        return value in built.accepts
    return built.accepts(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value

"""The pages of a plan in Markdown: computing, data, training, monitoring.

Each figure is one of the plan's, or of the detectors' own description.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainer_runtime.core.diagnosis.detectors.actor_loss import ActorLoss
from trainer_runtime.core.diagnosis.detectors.detector import Detector
from trainer_runtime.core.diagnosis.detectors.detector_set import DETECTORS
from trainer_runtime.core.diagnosis.detectors.kl import KlBlowup
from trainer_runtime.core.diagnosis.detectors.margins import Margins
from trainer_runtime.core.diagnosis.detectors.overoptimization import OverOptimization
from trainer_runtime.core.diagnosis.detectors.rewards import Rewards
from trainer_runtime.core.protocol.figures import number_text
from trainmaster.plan import Decision, Plan
from trainmaster.plan.decisions.curriculum import curriculum_of

_ALIGNING = ("dpo", "kto", "grpo", "reward")
_OF_REWARDS = (ActorLoss, KlBlowup, Margins, OverOptimization, Rewards)
_FIGURES = {
    "parameters": "parameters",
    "trained_parameters": "trained parameters: the adapter's",
    "memory_gib": "memory of a GPU, GiB",
    "disk_gib": "disk, GiB",
    "tokens_per_s": "tokens a second: the target",
    "mfu": "MFU: the target, of 1",
    "hours": "hours",
    "usd": "dollars",
    "sessions": "sessions",
}
_FORMS = {
    "shards": "Texts become tokens once, in shards on the machine that trains (`data.prepare`), "
    "and are cut into sequences of `data.seq_len` that follow each other without padding.",
    "stream": "Texts become tokens while they are read, and are cut into sequences of "
    "`data.seq_len`, shuffled by the seed; none is stored.",
    "dataset": "Rows are read whole, and become tokens before the first step; each is cut at "
    "`data.seq_len`, and padded to the longest of its micro-batch where rows are not packed.",
}
_RECOVERY = {
    "on_crash": "the trainer crashes",
    "on_nan": "the loss is not a number",
    "on_spike": "the loss spikes",
    "on_oom": "memory runs out",
    "on_stall": "no step for long",
    "max_restarts": "restarts at most",
}


def pages_of(made: Plan, place: str, warnings: Sequence[str]) -> dict[str, str]:
    """The pages by their names; `place`: the machine, `warnings`: of the whole answer."""
    name = made.config["name"]
    return {
        "compute.md": _page(f"Compute plan of {name}", _compute(made, place)),
        "data.md": _page(f"Data plan of {name}", _data(made)),
        "training.md": _page(f"Training plan of {name}", _training(made, warnings)),
        "monitoring.md": _page(f"Monitoring plan of {name}", _monitoring(made)),
    }


def tokens_of(made: Plan) -> int:
    """Of the whole training."""
    return curriculum_of(made.config).tokens_before(made.config["steps"])


def _compute(made: Plan, place: str) -> Iterator[str]:
    config, figures = made.config, made.estimates
    compute, limits = config["compute"], config["limits"]
    batch = config["batch"]
    rows = [
        ("machine", place, ""),
        ("GPUs", made.gpu.planned, ""),
        ("nodes", compute.get("nodes", 1), ""),
        ("strategy", compute["strategy"], ""),
        ("precision", config["precision"], ""),
        ("micro-batch, sequences", batch["micro_batch"], ""),
        ("micro-batches a step", batch["accumulation"], ""),
        ("tokens a step", batch["tokens"], ""),
        ("steps", config["steps"], ""),
        ("tokens in all", tokens_of(made), ""),
    ]
    for field, words in _FIGURES.items():
        value = getattr(figures, field)
        if value is not None:
            between = " to ".join(map(number_text, figures.ranges.get(field, ())))
            rows.append((words, value, between))
    rows += [
        ("longest runtime, seconds", limits["max_runtime_s"], ""),
        ("budget, dollars", limits["budget_usd"] or "none", ""),
    ]
    yield _table(("", "planned", "expected range"), rows)
    yield made.gpu.reason
    yield "## Reasons"
    yield _decisions(made, ("compute", "precision", "environment", "limits", "steps", "tokens"))


def _data(made: Plan) -> Iterator[str]:
    data = made.config["data"]
    sources = [(*_source(source), "training") for source in data["sources"]]
    sources += [(*_source(source), "validation") for source in data["validation"]]
    yield _table(("source", "path", "format", "weight", "for"), sources)
    if len(data["sources"]) > 1:
        yield "![The mix over the steps](schedule.png)"
    yield "## From texts to batches"
    yield _FORMS[data.get("form") or "shards"]
    rows = [
        ("tokenizer", data["tokenizer"] or "the model's"),
        ("tokens in a sequence", data["seq_len"]),
        ("texts kept apart in attention", "yes" if data["document_masks"] else "no"),
        ("packing", made.config.get("method_args", {}).get("packing", "by sequences")),
        ("prepared", data["prepare"]),
        ("cache", data["cache_dir"]),
        ("seed of the order", made.config["seed"]),
    ]
    yield _table(("", "planned"), rows)
    yield _decisions(made, ("data",))


def _training(made: Plan, warnings: Sequence[str]) -> Iterator[str]:
    yield "![Learning rate over the steps](schedule.png)"
    for title, sections in (
        ("Model", ("model", "adapter", "method", "objective", "method_args")),
        ("Optimizer and schedule", ("optimizer", "schedule", "batch", "steps", "phases")),
        ("Evaluation and checkpoints", ("eval", "checkpoint")),
    ):
        yield f"## {title}"
        yield _values(made, sections)
        yield _decisions(made, sections)
    yield "## Risks"
    yield "\n".join(f"- {text}" for text in warnings) or "None that the plan knows of."


def _monitoring(made: Plan) -> Iterator[str]:
    config = made.config
    yield _table(
        ("watched", "planned"),
        [
            ("loss, learning rate, norm of the gradient", "each step"),
            ("validation, steps between", config["eval"]["every_steps"]),
            ("checkpoints, steps or time between", config["checkpoint"]["every"]),
            ("best checkpoint by", config["checkpoint"]["metric"]),
            ("tokens a second, the least expected", _least(made)),
        ],
    )
    yield "## Alerts"
    alerts = [(alert["name"], alert["severity"], alert["when"]) for alert in config["alerts"]]
    yield (
        _table(("alert", "severity", "when"), alerts)
        if alerts
        else ("The spec has none: findings and a lost host go to the destinations' defaults.")
    )
    yield "## What the host does by itself"
    recovery = config["recovery"]
    yield _table(("when", "then"), [(words, recovery[key]) for key, words in _RECOVERY.items()])
    yield "## Findings and their thresholds"
    for detector in DETECTORS:
        if config["method"] in _ALIGNING or detector not in _OF_REWARDS:
            yield _described(detector)


def _least(made: Plan) -> Any:
    between = made.estimates.ranges.get("tokens_per_s")
    return "known after the first steps" if between is None else between[0]


def _described(detector: type[Detector]) -> str:
    """The codes of a detector, and where its thresholds come from in its module's own words."""
    text = (sys.modules[detector.__module__].__doc__ or "").strip()
    codes = ", ".join(f"`{code}`" for code in detector.codes)
    return f"**{codes}**\n\n{text}" if codes else text


def _source(source: Mapping[str, Any]) -> tuple[Any, ...]:
    return (source["name"], source["path"], source["format"], source.get("weight", ""))


def _values(made: Plan, sections: Sequence[str]) -> str:
    """The values of sections as resolved, without those that are decided with a reason below."""
    decided = {item.field for item in made.decisions}
    rows = [
        (f"`{section}.{name}`", value)
        for section in sections
        if isinstance(made.config.get(section), dict)
        for name, value in made.config[section].items()
        if value not in (None, [], {}) and f"{section}.{name}" not in decided
    ]
    return _table(("chosen, or by default", "value"), rows) if rows else ""


def _decisions(made: Plan, sections: Sequence[str]) -> str:
    def is_of(item: Decision) -> bool:
        return item.field.partition(".")[0].partition("[")[0] in sections

    rows = [
        (f"`{item.field}`", item.value, item.reason, item.source or "")
        for item in made.decisions
        if is_of(item)
    ]
    return _table(("decided", "value", "reason", "source"), rows) if rows else ""


def _page(title: str, blocks: Iterator[str]) -> str:
    return "\n\n".join([f"# {title}", *filter(None, blocks)]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = number_text(value) if isinstance(value, int | float) else str(value)
    return " ".join(text.replace("|", "\\|").split())

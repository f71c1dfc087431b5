"""Checks the fields of a spec against each other for its framework and method."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.answers.sampled import PARTS
from trainer_runtime.core.protocol.command import command
from trainmaster.plan.spec.document import TrainingSpec
from trainmaster.plan.spec.fields import all_fields
from trainmaster.plan.spec.method_arguments import argument_problems
from trainmaster.plan.spec.model import GPT2_PRESETS
from trainmaster.plan.spec.tracking import tracking_problems
from trainmaster.words.errors import Problem

_FROM_PREFERENCES = ("dpo", "kto", "reward")


def framework_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Everything that is wrong for the framework and the method which is sound by itself."""
    if not _has_method(spec):
        return  # the method itself is refused, by name; what follows from it would mislead
    if spec.framework != "nanogpt":
        yield from argument_problems(spec.method_args, spec.resolved_method, spec.framework)
        yield from tracking_problems(spec.tracking, spec.framework)
    yield from _model_problems(spec)
    yield from _adapter_problems(spec)
    yield from _format_problems(spec)
    yield from _preference_problems(spec)
    yield from _generation_problems(spec)
    yield from _process_problems(spec)
    yield from _sample_problems(spec)


def _has_method(spec: TrainingSpec) -> bool:
    method = next(field for field in all_fields() if field.path == "method")
    return method.annotation.lands[spec.framework].accepts(spec.method, method.default)


def _model_problems(spec: TrainingSpec) -> Iterator[Problem]:
    model = spec.model
    is_litgpt = spec.framework == "litgpt"
    if is_litgpt and spec.resolved_method == "sft" and not spec.continues:
        yield Problem(
            "MISSING_FIELD",
            "model.path",
            "`model.path` is missing: LitGPT tunes existing weights.",
            "Give model.path or model.hub; a preset's name alone brings no weights.",
        )
    grouped = model.n_kv_head is not None and model.n_kv_head != model.n_head
    if spec.framework in ("hf", "trl") and grouped and model.style != "llama":
        yield _wrong(
            "model.n_kv_head",
            f"is {model.n_kv_head}, but Hugging Face's GPT-2 has as many as `model.n_head`.",
            "Remove it, or set model.style to llama.",
        )
    if model.preset is not None and model.preset not in GPT2_PRESETS and model.style != "auto":
        yield _wrong("model.style", "is given beside a preset, which sets it.", "Remove it.")


def _adapter_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if spec.adapter is None:
        return
    if spec.framework == "litgpt" and spec.resolved_method != "sft":
        yield _wrong(
            "adapter",
            "is given, but LitGPT trains adapters only when it fine-tunes.",
            "Set method to sft, or remove the adapter.",
        )
    if spec.framework == "litgpt" and spec.compute.strategy == "fsdp":
        yield _wrong(
            "compute.strategy",
            "is fsdp, which LitGPT does not have for adapters.",
            "Set it to auto, or to ddp; or take trl.",
        )
    if spec.framework == "trl" and not spec.continues:
        yield _wrong(
            "adapter",
            "is given for a model that is made from sizes: its frozen weights would be random.",
            "Give model.path or model.hub, or remove the adapter.",
        )


def _format_problems(spec: TrainingSpec) -> Iterator[Problem]:
    method = spec.resolved_method
    for place, source in spec.data.inputs:
        field = f"{place}.format"
        if source.format == "preference" and method not in _FROM_PREFERENCES:
            fix = "Set method to dpo, kto or reward, or format to jsonl."
            yield _wrong(field, f"is preference, which {method} does not learn from.", fix)
        elif source.format == "text" and method in (*_FROM_PREFERENCES, "grpo"):
            fix = "Give rows, for example format: jsonl."
            yield _wrong(field, f"is text, in which {method} finds no columns.", fix)
        elif source.format == "text" and (spec.framework, method) == ("litgpt", "sft"):
            fix = "Give rows, for example format: jsonl; or set method to pretrain, or take trl."
            yield _wrong(field, "is text, but LitGPT fine-tunes on questions and answers.", fix)
        elif source.format == "tokens" and method == "sft":
            yield _wrong(field, "is tokens, but sft reads rows.", "Give format: jsonl, or text.")


def _preference_problems(spec: TrainingSpec) -> Iterator[Problem]:
    arguments, method = spec.method_args, spec.resolved_method
    if method == "dpo" and arguments.get("loss") == "ipo" and arguments.get("label_smoothing"):
        yield _wrong(
            "method_args.label_smoothing",
            f"is {arguments['label_smoothing']}, which TRL's ipo leaves out without a word.",
            "Remove it, or set method_args.loss to sigmoid.",
        )
    if method != "kto":
        return
    if spec.batch.micro_batch == 1:
        yield _wrong(
            "batch.micro_batch",
            "is 1, but kto compares the rows that go through together.",
            "Set it to at least 2, or to auto.",
        )
    if spec.data.seq_len <= spec.batch.tokens < 2 * spec.data.seq_len:
        yield _wrong(
            "batch.tokens",
            f"is {spec.batch.tokens}, one row of `data.seq_len` {spec.data.seq_len}, but kto "
            "compares rows.",
            f"Set batch.tokens to at least {2 * spec.data.seq_len}.",
        )


def _generation_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if spec.resolved_method != "grpo":
        return
    generations = spec.method_args.get("num_generations", 8)
    if isinstance(generations, int) and generations < 2:
        yield _wrong(
            "method_args.num_generations",
            f"is {generations}: completions are compared with each other.",
            "Set it to at least 2.",
        )
    length = spec.method_args.get("max_completion_length")
    if isinstance(length, int) and length >= spec.data.seq_len:
        yield _wrong(
            "method_args.max_completion_length",
            f"is {length}, which leaves no room for a prompt in `data.seq_len` "
            f"{spec.data.seq_len}.",
            f"Set it to less than {spec.data.seq_len}, or data.seq_len higher.",
        )


def _process_problems(spec: TrainingSpec) -> Iterator[Problem]:
    compute = spec.compute
    several = [
        f"{name} {count}"
        for name, count in (("gpus", compute.gpus), ("processes", compute.processes))
        if isinstance(count, int) and count > 1
    ]
    if compute.strategy == "single" and several:
        yield _wrong(
            "compute.strategy",
            f"is single, but `compute` asks for {several[0]}.",
            "Set compute.strategy to auto, or to ddp.",
        )


def _sample_problems(spec: TrainingSpec) -> Iterator[Problem]:
    samples = spec.eval.samples
    if samples is None:
        return
    if spec.resolved_method == "reward":
        yield _wrong("eval.samples", "is given, but a reward model writes no text.", "Remove it.")
    if spec.compute.strategy in PARTS:
        yield _wrong(
            "eval.samples",
            f"is given, but under {spec.compute.strategy} no rank has the whole model.",
            "Remove it, or set compute.strategy to ddp; "
            f"{command('sample', 'RUN')} asks the final model.",
        )
    words = [word for prompt in samples.prompts for word in prompt.split()]
    if spec.data.tokenizer == "none" and not all(word.isdecimal() for word in words):
        yield _wrong(
            "eval.samples.prompts",
            "has words, but tokens without a tokenizer are numbers.",
            "Write the numbers of tokens, or name the tokenizer.",
        )


def _wrong(field: str, what: str, fix: str) -> Problem:
    return Problem("INVALID_VALUE", field, f"`{field}` {what}", fix)

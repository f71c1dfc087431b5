"""Checks the fields of a spec against each other for its framework and method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_runtime.core.answers.sampled import PARTS
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import all_fields, nearest
from trainmaster.plan.frameworks import Framework, framework_of, method_of
from trainmaster.plan.spec.tracking import tracking_problems

_FROM_PREFERENCES = ("dpo", "kto", "reward")


def framework_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Everything that is wrong for the framework and the method which is sound by itself."""
    framework = framework_of(spec)
    if not _has_method(spec, framework):
        return  # the method itself is refused, by name; what follows from it would mislead
    if not framework.is_single_process:
        yield from argument_problems(spec.method_args, method_of(spec), framework)
        yield from tracking_problems(spec.tracking, framework)
    yield from framework.refusals(spec)
    yield from _format_problems(spec)
    yield from _preference_problems(spec)
    yield from _generation_problems(spec)
    yield from _process_problems(spec)
    yield from _sample_problems(spec)


def _has_method(spec: TrainingSpec, framework: Framework) -> bool:
    method = next(field for field in all_fields() if field.path == "method")
    return framework.place_of(method).accepts(spec.method, method.default)


def _format_problems(spec: TrainingSpec) -> Iterator[Problem]:
    method = method_of(spec)
    for place, source in spec.data.inputs:
        field = f"{place}.format"
        if source.format == "preference" and method not in _FROM_PREFERENCES:
            fix = "Set method to dpo, kto or reward, or format to jsonl."
            yield wrong_value(field, f"is preference, which {method} does not learn from.", fix)
        elif source.format == "text" and method in (*_FROM_PREFERENCES, "grpo"):
            fix = "Give rows, for example format: jsonl."
            yield wrong_value(field, f"is text, in which {method} finds no columns.", fix)
        elif source.format == "tokens" and method == "sft":
            yield wrong_value(
                field, "is tokens, but sft reads rows.", "Give format: jsonl, or text."
            )


def _preference_problems(spec: TrainingSpec) -> Iterator[Problem]:
    arguments, method = spec.method_args, method_of(spec)
    if method == "dpo" and arguments.get("loss") == "ipo" and arguments.get("label_smoothing"):
        yield wrong_value(
            "method_args.label_smoothing",
            f"is {arguments['label_smoothing']}, which TRL's ipo leaves out without a word.",
            "Remove it, or set method_args.loss to sigmoid.",
        )
    if method != "kto":
        return
    if spec.batch.micro_batch == 1:
        yield wrong_value(
            "batch.micro_batch",
            "is 1, but kto compares the rows that go through together.",
            "Set it to at least 2, or to auto.",
        )
    if spec.data.seq_len <= spec.step_tokens < 2 * spec.data.seq_len:
        yield wrong_value(
            "batch.tokens",
            f"is {spec.step_tokens}, one row of `data.seq_len` {spec.data.seq_len}, but kto "
            "compares rows.",
            f"Set batch.tokens to at least {2 * spec.data.seq_len}.",
        )


def _generation_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if method_of(spec) != "grpo":
        return
    generations = spec.method_args.get("num_generations", 8)
    if isinstance(generations, int) and generations < 2:
        yield wrong_value(
            "method_args.num_generations",
            f"is {generations}: completions are compared with each other.",
            "Set it to at least 2.",
        )
    length = spec.method_args.get("max_completion_length")
    if isinstance(length, int) and length >= spec.data.seq_len:
        yield wrong_value(
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
        yield wrong_value(
            "compute.strategy",
            f"is single, but `compute` asks for {several[0]}.",
            "Set compute.strategy to auto, or to ddp.",
        )


def _sample_problems(spec: TrainingSpec) -> Iterator[Problem]:
    samples = spec.eval.samples
    if samples is None:
        return
    if method_of(spec) == "reward":
        yield wrong_value(
            "eval.samples", "is given, but a reward model writes no text.", "Remove it."
        )
    if spec.compute.strategy in PARTS:
        yield wrong_value(
            "eval.samples",
            f"is given, but under {spec.compute.strategy} no rank has the whole model.",
            "Remove it, or set compute.strategy to ddp; "
            f"{command('sample', 'RUN')} asks the final model.",
        )
    words = [word for prompt in samples.prompts for word in prompt.split()]
    if spec.data.tokenizer == "none" and not all(word.isdecimal() for word in words):
        yield wrong_value(
            "eval.samples.prompts",
            "has words, but tokens without a tokenizer are numbers.",
            "Write the numbers of tokens, or name the tokenizer.",
        )


def argument_problems(
    values: Mapping[str, Any], method: str, framework: Framework
) -> Iterator[Problem]:
    """What is wrong with `method_args`."""
    arguments = framework.arguments.get(method, {})
    for name, value in values.items():
        field = f"method_args.{name}"
        if name not in arguments:
            yield _unknown(field, name, method, framework, list(arguments))
        elif not arguments[name].accepts(value):
            yield Problem(
                "INVALID_VALUE",
                field,
                f"`{field}` is {value!r}.",
                f"`{field}` takes {arguments[name].words}.",
            )
    for name, argument in arguments.items():
        if argument.default is ... and values.get(name) is None:
            yield Problem(
                "MISSING_FIELD",
                f"method_args.{name}",
                f"`method_args.{name}` is missing, which {method} needs.",
                f"Give `method_args.{name}`: {argument.words}.",
            )


def _unknown(
    field: str, name: str, method: str, framework: Framework, arguments: list[str]
) -> Problem:
    meant = nearest(name, arguments)
    guess = f" Did you mean `{meant}`?" if meant else ""
    return Problem(
        "UNKNOWN_KEY",
        field,
        f"`{field}` is not an argument of {method} with {framework.name}.{guess}",
        f"`method_args` takes {', '.join(arguments)}." if arguments else "Leave `method_args` out.",
    )

"""The supported fields of each framework: documented, mapped and refused alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from scripts.pages.frameworks import reference
from trainmaster.errors.errors import SpecError
from trainmaster.plan.fields.field_tree import Field, bare, field_type, members
from trainmaster.plan.frameworks import FRAMEWORKS, method_of
from trainmaster.plan.spec import (
    TrainingSpec,
    all_fields,
    load_spec,
    refuse_what_is_not_built,
)
from trainmaster.plan.spec.method_checks import argument_problems
from trainmaster.plan.spec.tracking import missing_secrets

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_METHODS = {
    "nanogpt": "pretrain",
    "litgpt": "pretrain",
    "hf": "pretrain",
    "trl": "sft",
    "script": "pretrain",
}
_PROGRAM = "script: {path: ., command: [python3, train.py]}"


def text(framework: str, more: str = "steps: 20") -> str:
    if framework == "script":
        return f"name: small\nframework: script\n{_PROGRAM}\n{more}\n"
    return (
        f"name: small\nframework: {framework}\nmodel: {{n_layer: 2, n_head: 2, d_model: 64}}\n"
        f"data: {{sources: [{{name: main, path: /corpus}}]}}\n{more}\n"
    )


def refusal(framework: str, *sets: str, more: str = "steps: 20") -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(text(framework, more), sets)
    return caught.value


def choices(field: Field) -> list[Any]:
    """The words and truth values that a field can take, but for `auto` and null."""
    found: list[Any] = []
    for member in members(field_type(field.info)):
        kind = bare(member)
        if get_origin(kind) is Literal:
            found += [value for value in get_args(kind) if value != "auto"]
        elif kind is bool:
            found += [True, False]
    return found


# Members of sections that are null unless they are given.
_OPTIONAL = (
    "adapter",
    "data.filters",
    "eval.samples",
    "model.rope_scaling",
    "script.",
    "spec_version",
)
CLOSED = [
    (field, value)
    for field in all_fields()
    if "[]" not in field.path and not field.path.startswith(_OPTIONAL)
    for value in choices(field)
]


def refused_fields(framework: str, path: str, value: Any) -> set[str]:
    document: dict[str, Any] = {
        "name": "small",
        "framework": framework,
        "model": {},
        "data": {"sources": [] if framework == "script" else [{"path": "/corpus"}]},
    }
    *sections, last = path.split(".")
    holder = document
    for section in sections:
        holder = holder.setdefault(section, {})
    holder[last] = value
    try:
        refuse_what_is_not_built(TrainingSpec.model_validate(document))
    except SpecError as error:
        return {problem.field for problem in error.problems} or {str(error.field)}
    return set()


def test_every_field_has_a_place_or_a_reason_in_every_framework() -> None:
    for field in all_fields():
        for framework, record in FRAMEWORKS.items():
            place = record.place_of(field)
            assert place.where or place.lacks, (field.path, framework)
            if place.takes is not None:
                assert place.words, (field.path, framework)
                assert place.lacks, (field.path, framework)
    paths = {field.path for field in all_fields()}
    assert {path for record in FRAMEWORKS.values() for path in record.places} <= paths


def test_the_mapping_page_is_the_generated_one_and_names_every_field() -> None:
    page = (_DOCS / "frameworks.md").read_text()
    assert page == reference()
    for field in all_fields():
        assert f"| `{field.path}` |" in page


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_the_mapping_leaves_out_is_what_planning_refuses(framework: str) -> None:
    """Of every field with a closed set of values, each value."""
    for field, value in CLOSED:
        if field.path == "framework":
            continue
        place = FRAMEWORKS[framework].place_of(field)
        is_taken = place.accepts(value, field.default)
        named = refused_fields(framework, field.path, value)
        refused = any(f"{field.path}.".startswith(f"{one}.") for one in named)
        assert refused is not is_taken, (field.path, value)
    assert len(CLOSED) > 40


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_defaults_are_taken_everywhere(framework: str) -> None:
    assert method_of(load_spec(text(framework))) == _METHODS[framework]


@pytest.mark.parametrize(
    ("framework", "value", "why"),
    [
        ("nanogpt", "model={path: /weights}", "only creates new models"),
        ("nanogpt", "compute.processes=2", "single process"),
        ("nanogpt", "tracking.tensorboard=true", "no loggers"),
        ("nanogpt", "method=sft", "only pretrains"),
        ("litgpt", "compute.strategy=zero2", "hf has DeepSpeed"),
        ("litgpt", "model.dropout=0.1", "no dropout"),
        ("litgpt", "data.prepare=stream", "token shards"),
        ("nanogpt", "model={preset: pythia-14m}", "has no model for"),
        ("hf", "adapter.r=8", "whole models"),
        ("hf", "compute.strategy=tp", "not built yet"),
        ("trl", "method=pretrain", "take hf or litgpt to pretrain"),
    ],
)
def test_a_refusal_says_what_the_framework_lacks(framework: str, value: str, why: str) -> None:
    error = refusal(framework, value)
    assert error.code == "NOT_YET_SUPPORTED"
    assert error.field is not None
    assert value.split("=", maxsplit=1)[0].startswith(error.field.split(".")[0])
    assert why in error.message
    assert error.field in error.fix
    assert "nothing yet" not in error.fix


_DPO = "method: dpo\nsteps: 20"
_GRPO = "method: grpo\nmethod_args: {reward_file: /reward.py}\nsteps: 20"
_KTO = "method: kto\nsteps: 20"
_ROWS = "data.sources.main.format=jsonl"
_WEIGHTS = "model={path: /weights}"


@pytest.mark.parametrize(
    ("framework", "sets", "more", "code", "field"),
    [
        ("trl", [_ROWS, "method_args.bata=0.1"], _DPO, "UNKNOWN_KEY", "method_args.bata"),
        ("trl", [_ROWS, "method_args.beta=-1"], _DPO, "INVALID_VALUE", "method_args.beta"),
        ("trl", [_ROWS, "method_args.loss=hinge"], _DPO, "INVALID_VALUE", "method_args.loss"),
        ("trl", [_ROWS, "method_args.epochs=1"], _DPO, "INVALID_VALUE", "method_args.epochs"),
        ("trl", ["method_args.epochs=often"], "", "INVALID_VALUE", "method_args.epochs"),
        ("trl", [_ROWS], "method: dpo", "MISSING_FIELD", "steps"),
        ("trl", [], _DPO, "INVALID_VALUE", "data.sources[0].format"),
        (
            "trl",
            ["data.sources.main.format=preference"],
            "steps: 20",
            "INVALID_VALUE",
            "data.sources[0].format",
        ),
        ("trl", [_ROWS], "method: grpo\nsteps: 2", "MISSING_FIELD", "method_args.reward_file"),
        (
            "trl",
            [_ROWS, "method_args.num_generations=1"],
            _GRPO,
            "INVALID_VALUE",
            "method_args.num_generations",
        ),
        (
            "trl",
            [_ROWS, "method_args.max_completion_length=128"],
            _GRPO,
            "INVALID_VALUE",
            "method_args.max_completion_length",
        ),
        ("trl", ["model.n_kv_head=1"], "steps: 20", "INVALID_VALUE", "model.n_kv_head"),
        ("trl", ["model.revision=main"], "steps: 20", "INVALID_VALUE", "model.revision"),
        ("litgpt", ["adapter.r=8"], "steps: 20", "INVALID_VALUE", "adapter"),
        ("litgpt", ["method=sft"], "steps: 20", "MISSING_FIELD", "model.path"),
        (
            "litgpt",
            ["method=sft", _WEIGHTS],
            "steps: 20",
            "INVALID_VALUE",
            "data.sources[0].format",
        ),
        (
            "litgpt",
            ["method=sft", _WEIGHTS, _ROWS, "adapter.r=8", "compute.strategy=fsdp"],
            "steps: 20",
            "INVALID_VALUE",
            "compute.strategy",
        ),
        (
            "trl",
            [_ROWS, "method_args={loss: ipo, label_smoothing: 0.1}"],
            _DPO,
            "INVALID_VALUE",
            "method_args.label_smoothing",
        ),
        ("trl", [_ROWS, "batch.micro_batch=1"], _KTO, "INVALID_VALUE", "batch.micro_batch"),
        ("trl", [_ROWS, "batch.tokens=128"], _KTO, "INVALID_VALUE", "batch.tokens"),
        (
            "litgpt",
            ["method_args.packing=true"],
            "steps: 20",
            "UNKNOWN_KEY",
            "method_args.packing",
        ),
        (
            "hf",
            ["compute.processes=2", "compute.strategy=single"],
            "steps: 20",
            "INVALID_VALUE",
            "compute.strategy",
        ),
        ("hf", ["tracking.csv=true"], "steps: 20", "UNKNOWN_KEY", "tracking.csv"),
        ("hf", ["tracking.wandb=5"], "steps: 20", "WRONG_TYPE", "tracking.wandb"),
        (
            "hf",
            ["tracking={wandb: {projekt: x}}"],
            "steps: 20",
            "UNKNOWN_KEY",
            "tracking.wandb.projekt",
        ),
        (
            "litgpt",
            ["tracking={tensorboard: true, wandb: true}"],
            "steps: 20",
            "INVALID_VALUE",
            "tracking.wandb",
        ),
    ],
)
def test_what_does_not_go_with_the_framework_or_method_is_refused(
    framework: str, sets: list[str], more: str, code: str, field: str
) -> None:
    error = refusal(framework, *sets, more=more)
    assert (error.code, error.field) == (code, field)
    assert error.fix


def test_a_misspelt_argument_comes_with_the_one_that_was_meant() -> None:
    assert "Did you mean `beta`?" in refusal("trl", _ROWS, "method_args.bata=1", more=_DPO).message


def test_epochs_may_stand_for_the_length_where_a_model_is_tuned() -> None:
    for epochs in ("auto", "2", "0.5"):
        more = f"method: dpo\nmethod_args: {{epochs: {epochs}}}"
        assert load_spec(text("trl", more), [_ROWS]).steps is None


def test_every_default_of_an_argument_is_one_that_it_takes() -> None:
    tables = [record.arguments for record in FRAMEWORKS.values()]
    for method, arguments in (item for table in tables for item in table.items()):
        for name, argument in arguments.items():
            if argument.default not in (None, ...):
                assert argument.accepts(argument.default), (method, name)
            assert argument.words
            assert argument.text.endswith((".", "`", "it.")), (method, name)


def test_arguments_that_a_method_needs_are_asked_for() -> None:
    problems = list(argument_problems({}, "grpo", FRAMEWORKS["trl"]))
    assert [problem.field for problem in problems] == ["method_args.reward_file"]


@pytest.mark.parametrize(
    ("tracking", "secrets", "missing"),
    [
        ({"tensorboard": True}, [], []),
        ({"wandb": {"project": "demo"}}, [], [("wandb", "WANDB_API_KEY")]),
        ({"wandb": {"project": "demo"}}, ["WANDB_API_KEY"], []),
        ({"wandb": {"mode": "offline"}}, [], []),
        ({"wandb": False, "comet": True}, [], [("comet", "COMET_API_KEY")]),
    ],
)
def test_a_logger_that_writes_to_a_service_wants_its_secret(
    tracking: dict[str, Any], secrets: list[str], missing: list[tuple[str, str]]
) -> None:
    assert list(missing_secrets(tracking, secrets, {})) == missing
    offline = {"WANDB_MODE": "offline", "COMET_MODE": "offline"}
    assert not list(missing_secrets(tracking, secrets, offline))


@pytest.mark.parametrize(
    ("framework", "more", "field"),
    [
        ("trl", "method: reward\n", "eval.samples"),
        ("hf", "compute: {strategy: fsdp}\n", "eval.samples"),
        ("script", "", "eval"),
        ("litgpt", "chat", "eval.samples.chat"),
    ],
)
def test_samples_that_no_rank_or_framework_can_write_are_refused(
    framework: str, more: str, field: str
) -> None:
    samples = "{prompts: [a], chat: true}" if more == "chat" else "{prompts: [a]}"
    lines = f"steps: 20\neval: {{samples: {samples}}}\n{'' if more == 'chat' else more}"
    error = refusal(framework, more=lines)
    fields = {problem.field for problem in error.problems} or {error.field}
    assert field in fields

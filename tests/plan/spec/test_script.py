"""The program of a spec: what is refused before anything starts."""

from __future__ import annotations

import pytest

from trainmaster.errors.errors import SpecError
from trainmaster.plan.spec import load_spec

_SPEC = """\
name: program
framework: script
script:
  path: /program
  command: [python3, train.py]
  checkpoints: {path: "out/ckpt_*.pt"}
"""


def refused(*sets: str) -> tuple[str, str | None]:
    with pytest.raises(SpecError) as caught:
        load_spec(_SPEC, sets)
    error = caught.value
    return (
        (error.problems[0].code, error.problems[0].field)
        if error.problems
        else (
            error.code,
            error.field,
        )
    )


def test_a_program_needs_neither_model_nor_data_nor_length() -> None:
    spec = load_spec(_SPEC)
    assert spec.script is not None
    assert spec.steps is None


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ("script.resume=[--resume]", "INVALID_VALUE", "script.resume"),
        ("script.command=[]", "INVALID_VALUE", "script.command"),
        ("script.path=host:relative", "INVALID_VALUE", "script.path"),
        ("script.checkpoints.path=../out/*.pt", "INVALID_VALUE", "script.checkpoints.path"),
        ("script.checkpoints.path=/out/*.pt", "INVALID_VALUE", "script.checkpoints.path"),
        ("script.checkpoints.step=ckpt_(", "INVALID_VALUE", "script.checkpoints.step"),
        ("script.checkpoints.step=ckpt_", "INVALID_VALUE", "script.checkpoints.step"),
        ("script.final=/model", "INVALID_VALUE", "script.final"),
        ("script.pattern=it {stop}", "PATTERN_INVALID", "script.pattern"),
        ("optimizer.lr=0.1", "NOT_YET_SUPPORTED", "optimizer"),
        ("checkpoint.keep_latest=2", "NOT_YET_SUPPORTED", "checkpoint.keep_latest"),
        ("script.stop_signal=KILL", "INVALID_VALUE", "script.stop_signal"),
        ("script=null", "MISSING_FIELD", "script"),
        ("script.command=[train, '{data}']", "INVALID_VALUE", "script.command"),
        ("script.command=[train, '--seed={sed}']", "INVALID_VALUE", "script.command[1]"),
        ("script.command=[train, '--from={checkpoint}']", "INVALID_VALUE", "script.command[1]"),
        ("script.resume=['{checkpoint}', '{epoch}']", "INVALID_VALUE", "script.resume[1]"),
        ("host=[gpu1, gpu1]", "INVALID_VALUE", "host"),
        ("host=[gpu1, local]", "INVALID_VALUE", "host"),
        ("data.sources=[{path: /a/one}]", "INVALID_VALUE", "data.sources[0]"),
    ],
)
def test_what_cannot_work_is_refused_by_its_field(change: str, code: str, field: str) -> None:
    assert refused(change) == (code, field)


@pytest.mark.parametrize(
    "change",
    [
        'script.resume=[--resume, "{checkpoint}"]',
        'script.resume=["--step={step}"]',
        'script.command=[train, "{{epoch}}", "${HOME}", \'{"lr": 1}\', "{seed}{gpus}"]',
        "script.resume=[]",
    ],
)
def test_words_that_name_the_checkpoint_are_taken(change: str) -> None:
    load_spec(_SPEC, [change])


def test_data_is_named_by_the_command_alone_or_by_its_name() -> None:
    named = ["script.command=[train, '--a={data.one}', '{data.b.txt}']"]
    load_spec(_SPEC, ["data.sources=[{path: /a/one}, {path: /a/b.txt}]", *named])
    load_spec(_SPEC, ["data.sources=[{path: /a/one}]", "script.command=[train, '{data}']"])


def test_one_file_needs_no_placeholder() -> None:
    load_spec(_SPEC, ["script.checkpoints.path=out/ckpt.pt", "script.resume=[--resume]"])


def test_a_script_belongs_to_its_framework_alone() -> None:
    text = (
        "name: small\nframework: nanogpt\nmodel: {n_layer: 2, n_head: 2, d_model: 64}\n"
        "data: {sources: [{path: /corpus}]}\nsteps: 5\n"
        "script: {path: /program, command: [train]}\n"
    )
    with pytest.raises(SpecError, match="script"):
        load_spec(text)

"""Output folders of nanoGPT become runs that continue from them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of
from support.runs.running_run import LONGEST_S, CommandLine, write_corpus
from support.train.output_folders import write_nanogpt

from trainer_runtime.core.config.lr_schedule import lr_factor
from trainer_runtime.core.files.foreign_output import FoundCheckpoint, FoundOutput
from trainer_runtime.train.foreign.records import stamp_of
from trainmaster.errors.errors import SpecError, TrainmasterError
from trainmaster.runs.adopt import AdoptOptions, adopt
from trainmaster.runs.adopt.agreement import (
    refuse_another_framework,
    refuse_another_shape,
    refuse_no_steps,
)
from trainmaster.runs.adopt.output_folder import Output
from trainmaster.runs.adopt.schedule_continuation import assumed_defaults, fields_to_continue
from trainmaster.runs.adopt.starting_spec import starting_spec
from trainmaster.settings.yaml12 import load_yaml
from trainmaster.sync.workspace import Workspace

STEPS = 40
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, tuple[float, float]]:
    """The corpus, an output folder of a training on it, its first loss and its last."""
    folder = tmp_path_factory.mktemp("made")
    corpus = write_corpus(folder / "corpus")
    text = b"".join(path.read_bytes() for path in sorted(corpus.glob("*.txt")))
    return (
        corpus,
        folder / "story-gpt" / "out",
        write_nanogpt(folder / "story-gpt/out", text, STEPS),
    )


@pytest.fixture
def out(made: tuple[Path, Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that may be spoilt; the starting spec goes beside it."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made[1], tmp_path / "story-gpt" / "out"))


@pytest.mark.long
def test_a_run_continues_from_an_adopted_folder(
    command: CommandLine,
    environment: dict[str, str],
    made: tuple[Path, Path, tuple[float, float]],
    out: Path,
) -> None:
    corpus, _, (first, last) = made
    before = stamp_of(out)
    shutil.copytree(corpus, data := out.parent / "corpus")
    changes = {"--data": data, "--set": "compute.threads=1", "--name": "taken"}
    begun = command(
        *("adopt", str(out), "--idempotency-key", "once"),
        *(str(word) for pair in changes.items() for word in pair),
    )
    again = {name[2:]: str(value) for name, value in changes.items()}
    found = anyio.run(adopt_by_tool, environment, {**again, "folder": str(out)})
    assert (found["run_id"], found["resume_from"]) == (begun["run_id"], STEPS)
    assert (begun["framework"], begun["resume_from"], begun["attempt"]) == ("nanogpt", STEPS, 1)
    run = begun["run_id"]
    assert run.startswith("taken-")
    ended = command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert (ended["event"], ended["step"]) == ("completed", STEPS + 20)
    series = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert series["steps"] == list(range(STEPS + 1, STEPS + 21))
    assert series["values"][0] < last + 0.1 * (first - last)
    listed = command("checkpoints", run, "--verify")
    assert [(row["step"], row["verified"]) for row in listed["checkpoints"]] == [
        (STEPS, True),
        (STEPS + 20, True),
    ]
    assert command("status", run, "--detail")["attempts"][0]["started_at_step"] == STEPS
    assert stamp_of(out) == before


async def adopt_by_tool(environment: dict[str, str], arguments: dict[str, str]) -> dict[str, Any]:
    async with connected(environment) as client:
        return await answer_of(client, "adopt", idempotency_key="once", **arguments)


def test_an_agent_adopts_only_what_its_user_lets_it_read(
    environment: dict[str, str], made: tuple[Path, Path, Any], out: Path, tmp_path: Path
) -> None:
    """Nothing is read, and no interpreter run, before somebody agreed."""
    (python := tmp_path / "python").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    python.chmod(0o755)

    async def call() -> dict[str, Any]:
        async with connected(environment) as client:
            beyond = await error_of(client, "adopt", folder=str(made[1]))
            assert beyond.startswith("CONFIRMATION_REQUIRED: Read a training's output on local")
            asked = {"folder": str(out), "python": str(python)}
            assert (await error_of(client, "adopt", **asked)).startswith("POLICY_PROGRAM: ")
            spec = f"name: x\nframework: nanogpt\nenvironment: {{python: {python}}}\nsteps: 9\n"
            spec += f"model: {{preset: gpt2-124m}}\ndata: {{sources: [{{path: {out}}}]}}\n"
            asked = {"folder": str(out), "spec": spec}
            assert (await error_of(client, "adopt", **asked)).startswith("POLICY_PROGRAM: ")
            return await answer_of(client, "adopt", folder=str(out))

    inspected = anyio.run(call)
    assert not (tmp_path / "was-run").exists()
    assert "name: story-gpt-out" in inspected["spec_text"] and "spec" not in inspected
    assert f'adopt(folder="{out}", data="PATH"' in inspected["next_step"]
    assert not (tmp_path / "adopted.yaml").exists()


def test_without_data_it_is_inspected_and_a_starting_spec_is_written(
    command: CommandLine, workspace: Workspace, made: tuple[Path, Path, Any], out: Path
) -> None:
    answer = command("adopt", str(out))
    assert "run_id" not in answer
    assert [(row["step"], row["verified"]) for row in answer["checkpoints"]] == [(STEPS, True)]
    assert (answer["skipped"], answer["resume_from"]) == ([], STEPS)
    assert (answer["spec"], answer["open"]) == ("adopted.yaml", ["data.sources[].path"])
    text = Path("adopted.yaml").read_text()
    assert "name: story-gpt-out" in text
    Path("adopted.yaml").write_text(text.replace("FILL_IN", str(made[0])))
    options = AdoptOptions(spec="adopted.yaml", dry_run=True)
    planned = asyncio.run(adopt(workspace, str(out), options))
    assert planned.resume_from == STEPS
    shown = asyncio.run(
        adopt(
            workspace,
            str(out),
            AdoptOptions(data=str(made[0]), sets=["seed=7"], dry_run=True),
        )
    ).spec_text
    assert shown is not None
    assert f"path: {made[0]}" in shown
    assert "seed: 7" in shown
    assert planned.warnings is not None
    assert "if its training still runs" in planned.warnings[-2]
    assert "tokens" in planned.warnings[-1]
    assert command("runs")["runs"] == []


def refused(workspace: Workspace, folder: Path, **options: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as raised:
        asyncio.run(adopt(workspace, str(folder), AdoptOptions(**options)))
    assert not workspace.control.runs()
    return raised.value


def test_a_spec_of_another_shape_is_refused_before_anything_starts(
    workspace: Workspace, made: tuple[Path, Path, Any], out: Path
) -> None:
    sets = ("model.n_layer=2", "data.seq_len=64")
    error = refused(workspace, out, data=str(made[0]), sets=sets)
    assert error.code == "SHAPE_DIFFERS"
    assert isinstance(error, SpecError)
    assert [item.field for item in error.problems] == ["model.n_layer", "data.seq_len"]


def test_a_folder_without_a_whole_checkpoint_is_refused_with_the_reasons(
    workspace: Workspace, out: Path
) -> None:
    os.truncate(out / "ckpt.pt", 5000)
    error = refused(workspace, out)
    assert error.code == "NO_CHECKPOINT"
    assert "ckpt.pt is torn" in error.message
    assert not Path("adopted.yaml").exists()


@pytest.mark.parametrize(
    ("folder", "options", "field"),
    [
        ("out", {"spec": "a.yaml", "data": "corpus"}, "data"),
        ("out", {"name": "../x"}, "name"),
        ("out", {"host": "debug"}, "host"),
        ("box:/srv/out", {"host": "other"}, "host"),
    ],
)
def test_options_that_contradict_are_refused_at_once(
    workspace: Workspace, folder: str, options: dict[str, Any], field: str
) -> None:
    assert refused(workspace, Path(folder), **options).field == field


def row(step: int, problem: str | None = None, rate: float | None = None) -> FoundCheckpoint:
    return FoundCheckpoint(f"checkpoint-{step}", step, 1.0, 1, "", rate=rate, problem=problem)


def test_the_newest_that_verifies_is_taken_and_a_step_only_if_it_does() -> None:
    rows = (row(5), row(10), row(15, "optimizer.pt missing"))
    output = Output("local", FoundOutput("hf", "/out", rows))
    assert output.chosen("latest").step == 10
    assert output.chosen("5").step == 5
    for start, code in (
        ("15", "CHECKPOINT_DAMAGED"),
        ("7", "NO_CHECKPOINT"),
        ("x", "BAD_ARGUMENT"),
    ):
        with pytest.raises(TrainmasterError) as raised:
            output.chosen(start)
        assert raised.value.code == code
    answer = output.answer("Next.")
    assert [(item.step, item.reason) for item in answer.skipped] == [(15, "optimizer.pt missing")]
    assert answer.resume_from == 10


def test_framework_and_length_have_to_agree_with_the_checkpoint() -> None:
    refuse_another_framework("trl", "hf")
    with pytest.raises(SpecError, match="written by nanogpt"):
        refuse_another_framework("hf", "nanogpt")
    refuse_another_shape({"model": {"n_layer": None, "n_head": 2}}, {"model.n_head": 2})
    with pytest.raises(SpecError, match="nothing is left to do"):
        refuse_no_steps(40, 40)


def test_a_starting_spec_names_what_it_can_not_derive() -> None:
    described = {"model.path": "/srv/out/checkpoint-5", "steps": -1}
    found = FoundOutput("hf", "/srv/out", (), described=described, open=("data.tokenizer",))
    text, needed = starting_spec(Output("box", found), row(5), "out", None)
    assert needed == ["data.sources[].path", "data.tokenizer", "steps"]
    assert "path: host:/srv/out/checkpoint-5" in text
    assert "# Fill in steps" in text
    assert "steps: -1" not in text


def test_what_nanogpt_prepared_is_read_as_tokens(tmp_path: Path) -> None:
    (tmp_path / "train.bin").touch()
    found = FoundOutput("nanogpt", "/srv/out", (), described={"model.vocab_size": 65})
    for data, expected in (
        (str(tmp_path), "tokens"),
        (str(tmp_path / "train.bin"), "tokens"),
        (str(tmp_path.parent), None),
    ):
        text, _ = starting_spec(Output("local", found), row(5), "out", data)
        (source,) = load_yaml(text)["data"]["sources"]
        assert (source["path"], source.get("format")) == (data, expected)


def of_trainer(rate: float, **described: Any) -> Output:
    """A folder of Trainer at step 50, laid out for 100 with a rate of 0.001 at most."""
    recorded = {"optimizer.lr": 1e-3, "steps": 100, "batch.micro_batch": 4, "data.seq_len": 64}
    rows = (row(50, rate=rate),)
    return Output("local", FoundOutput("hf", "/srv/out", rows, described={**recorded, **described}))


LINEAR = {"schedule.kind": "linear", "schedule.warmup_steps": 0, "schedule.min_lr_ratio": 0.0}


def continuation(output: Output, *sets: str) -> tuple[dict[str, Any], list[str]]:
    return fields_to_continue(output, output.chosen("latest"), sets)


def test_a_schedule_that_the_folder_records_just_continues() -> None:
    fields, notes = continuation(of_trainer(5e-4, **LINEAR))
    assert fields == {"batch.tokens": 4 * 64}
    assert "without accumulation" in notes[0]
    assert continuation(of_trainer(5e-4, **LINEAR), "batch.tokens=512") == ({}, [])
    assert continuation(of_trainer(5e-4, **LINEAR, method="dpo")) == ({}, [])


@pytest.mark.parametrize(
    ("output", "sets", "expected"),
    [
        (of_trainer(5e-4, **LINEAR), ("steps=200",), 5e-4),
        (of_trainer(5e-4), (), 5e-4),
        (of_trainer(0.0, **LINEAR), ("steps=200",), 1e-4),
    ],
    ids=["longer", "of unknown shape", "already at its end"],
)
def test_the_rate_continues_from_where_the_checkpoint_left_it(
    output: Output, sets: tuple[str, ...], expected: float
) -> None:
    fields, notes = continuation(output, *sets)
    kind, ratio = fields["schedule.kind"], 0.0 if sets else 0.1
    steps = 200 if sets else 100
    factor = lr_factor(kind, 51, steps, fields["schedule.warmup_steps"], ratio)
    assert fields["optimizer.lr"] * factor == pytest.approx(expected, rel=1e-4)
    assert "continues from" in notes[-1]
    assert "optimizer.lr" not in continuation(output, *sets, "optimizer.lr=0.01")[0]


def test_what_neither_folder_nor_user_gives_is_noted_with_the_plans_choice() -> None:
    config = {"precision": "bf16", "seed": 7, "batch": {"tokens": 256, "micro_batch": 4}}
    (note,) = assumed_defaults(of_trainer(5e-4, **LINEAR), config, ["batch.tokens", "seed"])
    assert "precision bf16. Give" in note
    assert "micro_batch" not in note

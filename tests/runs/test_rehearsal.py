"""Rehearsals: what a short run of a training shows before the whole of it is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.plan.small_plans import SpecMaker
from support.runs.rehearsals import program_spec, verdicts
from support.runs.running_run import CommandLine, run_async, small_spec

from trainmaster.errors.confirmation import Quote, agreed
from trainmaster.errors.errors import PolicyError
from trainmaster.plan import CorpusFacts, plan
from trainmaster.plan.facts import Calibration
from trainmaster.plan.imagined import imagined_host
from trainmaster.plan.planned import Planned
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.launch.rehearse import refuse_unrehearsed
from trainmaster.sync.workspace import Workspace


def planned_on_gpu(corpus: CorpusFacts, spec: TrainingSpec) -> Planned:
    host = imagined_host("box", "NVIDIA H100 80GB HBM3", 1, 80.0)
    return Planned(spec, host, corpus, Calibration(), plan(spec, host, corpus), {})


def test_an_agent_launches_more_than_a_gpu_hour_after_a_rehearsal_or_a_person_s_word(
    workspace: Workspace, text_corpus: CorpusFacts, make_spec: SpecMaker
) -> None:
    short, long = (
        planned_on_gpu(text_corpus, make_spec(f"steps={steps}")) for steps in (200, 10**9)
    )
    quotes: list[Quote] = []

    async def agree(quote: Quote) -> str:
        quotes.append(quote)
        return await agreed(quote)

    async def work() -> None:
        assert await refuse_unrehearsed(workspace, short, None) is short
        with pytest.raises(PolicyError, match="NOT_REHEARSED") as refused:
            await refuse_unrehearsed(workspace, long, None)
        assert "--smoke" in refused.value.fix
        assert await refuse_unrehearsed(workspace, long, agree) is long

    run_async(work)
    (quote,) = quotes
    assert "no rehearsal of it has passed. Launch it without one?" in quote.text


@pytest.mark.slow
def test_a_rehearsal_that_passes_continues_to_the_training_once(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(program_spec(tmp_path, "own"))
    report = command("launch", str(spec), "--smoke")
    assert (report["verdict"], report["of"], report["kind"]) == ("passed", "own", "smoke")
    whole = command("status", report["launched"])
    assert (whole["name"], whole["target_step"]) == ("own", 5000)
    assert "rehearsal" not in whole

    status = command("status", report["run_id"])
    assert status["rehearsal"] == {
        "of": "own",
        "verdict": "passed",
        "launched": report["launched"],
    }
    assert status["findings"] == []
    (listed,) = command("runs", "--label", "rehearsal_of=own")["runs"]
    assert listed["run_id"] == report["run_id"]
    command("tick")
    assert command("rehearse", "--report", report["run_id"])["launched"] == report["launched"]
    assert len(command("runs")["runs"]) == 2
    command("stop", report["launched"])


def test_what_is_no_longer_than_a_rehearsal_is_said_and_nothing_is_started(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(small_spec(tmp_path, steps="20"))
    command.home.mkdir(exist_ok=True)
    (command.home / "settings.yaml").write_text("secrets: {allow: [NOT_THERE]}\n")
    for arguments, expected, code in (
        (("launch", str(spec), "--smoke"), "REHEARSAL_TOO_LONG", 1),
        (("launch", str(spec), "--smoke=twice"), "BAD_ARGUMENT", 2),
        (("launch", str(spec), "--smoke", "--vary", "seed=1,2"), "BAD_ARGUMENT", 2),
        (("rehearse",), "BAD_ARGUMENT", 2),
        (("rehearse", "--report", "none"), "RUN_NOT_FOUND", 1),
        (("rehearse", str(spec), "--set", "secrets=[NOT_THERE]"), "SECRET_MISSING", 1),
        (("rehearse", str(spec), "--set", "model.vocab_size=100"), "VOCABULARY_TOO_SMALL", 1),
    ):
        error = command(*arguments, code=code)["error"]
        assert error["code"] == expected, error
    assert command("runs")["runs"] == []


# What a hub or a tokenizer of its own would be needed for is another test's.
_OF_TUNING = "{n_layer: 1, n_head: 2, d_model: 32}"


@pytest.mark.engine
@pytest.mark.parametrize("framework", ["hf", "litgpt", "trl"])
@pytest.mark.parametrize("command_of", ["rehearse", "launch"])
def test_each_framework_passes(
    command: CommandLine, tmp_path: Path, framework: str, command_of: str
) -> None:
    spec = small_spec(tmp_path, framework=framework, model=_OF_TUNING, steps="1000")
    options = ("--smoke=only",) if command_of == "launch" else ()
    _passes_all(command(command_of, spec, *options), {"memory", "throughput"})


@pytest.mark.slow
def test_a_training_of_our_own_passes_at_its_size_and_tiny(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = small_spec(tmp_path, steps="1000", eval="{every_steps: 500}", checkpoint="{every: 10m}")
    _passes_all(command("launch", spec, "--smoke=only"), {"memory", "throughput"})
    large = small_spec(
        tmp_path,
        model="{n_layer: 32, n_head: 32, d_model: 4096}",
        compute="{gpus: 1, gpu: h100}",
        host="not-rented-yet",
        steps="100000",
    )
    report = command("rehearse", large)
    assert (report["host"], report["kind"], report["steps"]) == ("local", "tiny", 20)
    _passes_all(report, {"memory", "throughput"})


def _passes_all(report: dict[str, Any], unjudged: set[str]) -> None:
    assert report["verdict"] == "passed", report
    others = {name for name, verdict in verdicts(report).items() if verdict != "passed"}
    assert others == unjudged, report

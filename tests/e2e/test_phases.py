"""Curricula through the command line, trained for real: the recipes, small, and missed phases."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.runs.running_run import LONGEST_S, CommandLine, write_corpus
from support.session.tiers import at_length
from support.train.preference_data import save_tiny_model

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.core.protocol.trainer_lines import PhaseChanged

RECIPES = Path(__file__).resolve().parents[2] / "docs/recipes"
TINY = {"n_layer": 1, "n_head": 2, "d_model": 32}
MISSED = "{metric: val_loss, below: 0.01}"


def recipe(name: str, folder: Path, **changes: Any) -> str:
    """The spec of a recipe's page, over small corpora in `folder`."""
    text = re.findall(r"```yaml\n# \S+\n(.*?)```", (RECIPES / name).read_text(), re.DOTALL)[0]
    spec = {**yaml.safe_load(text), **changes}
    for source in spec["data"]["sources"]:
        source["path"] = str(write_corpus(folder / source["name"]))
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec))
    return str(path)


def shortened(phases: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    return [
        {**{key: value for key, value in phase.items() if key != "tokens"}, "steps": steps}
        for phase in phases
    ]


def spec_of(name: str) -> dict[str, Any]:
    text = re.findall(r"```yaml\n# \S+\n(.*?)```", (RECIPES / name).read_text(), re.DOTALL)[0]
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def four_phases(folder: Path) -> str:
    phases = shortened(spec_of("curriculum.md")["phases"], 21)
    phases[1]["batch"] = 1024
    return recipe(
        "curriculum.md",
        folder,
        phases=phases,
        model=TINY,
        data={"sources": spec_of("curriculum.md")["data"]["sources"], "seq_len": 128},
        batch={"tokens": 512, "ramp": "auto"},
        checkpoint={"every": 20},
    )


def positions(command: CommandLine, run: str, steps: list[int]) -> list[list[int]]:
    kept = [command.folder(run).checkpoints / f"step-{step:08d}" for step in steps]
    names = ("state.json", "data_position.json")
    files = [next(path / name for name in names if (path / name).exists()) for path in kept]
    return [json.loads(path.read_bytes())["data_position"] for path in files]


def test_the_four_phases_of_the_recipe_train_plot_and_are_awaited(
    here: CommandLine, tmp_path: Path
) -> None:
    spec = four_phases(tmp_path)
    planned = here("plan", spec)["curriculum"]
    assert planned["phase"] == ["base", "mixed", "focused", "anneal"]
    assert planned["steps"] == [21] * 4
    assert len(planned["picture"]["lr"]) == 40
    run = here("launch", spec)["run_id"]
    awaited = here("wait", run, "--until", "phase", "--timeout", str(LONGEST_S))
    assert awaited["event"] == "phase"
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert status["phase"]["verdicts"]["focused"].startswith("met: val_loss/general")
    # In windows of the full length, of which the first phase has read halves.
    base, mixed, focused, _ = positions(here, run, [21, 42, 63, 84])
    assert base[1] == 0
    assert [mixed[1], focused[1] - mixed[1]] == [round(21 * 8 * 0.1), round(21 * 4 * 0.4)]
    # Each share is realised to one sequence.
    code = here("metrics", run)["phases"]["mix"]["code"][:3]
    assert code == pytest.approx([0.0, 17 / (21 * 8), 34 / (21 * 4)], abs=1e-4)
    tags = [tag for row in here("checkpoints", run)["checkpoints"] for tag in row.get("tags", [])]
    assert {"phase:base", "phase:mixed", "phase:focused", "phase:anneal"} <= set(tags)


@pytest.mark.engine
@pytest.mark.parametrize("name", ["curriculum.md", "continue-pretraining.md"])
def test_a_recipe_realises_the_mix_of_each_phase_within_a_thousandth(
    here: CommandLine, tmp_path: Path, name: str
) -> None:
    """Of a thousand sequences and more in each; the phases' own rates and targets are left out."""
    phases = [
        {key: phase[key] for key in ("name", "steps", "sources") if key in phase}
        for phase in shortened(spec_of(name)["phases"], 21)
    ]
    existing = spec_of(name)["framework"] == "hf"
    spec = recipe(
        name,
        tmp_path,
        phases=phases,
        model={"path": str(save_tiny_model(tmp_path / "base"))} if existing else TINY,
        data={"sources": spec_of(name)["data"]["sources"], "seq_len": 16},
        batch={"tokens": 16 * 64},
        eval={"every_steps": 21, "batches": 1},
    )
    run = here("launch", spec)["run_id"]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    mix = here("metrics", run)["phases"]["mix"]
    for at, phase in enumerate(phases):
        weights = phase.get("sources") or dict.fromkeys(mix, 1)
        for source, shares in mix.items():
            planned = weights.get(source, 0) / sum(weights.values())
            assert abs(shares[at] - planned) <= 0.001, (phase["name"], source)


@pytest.mark.long  # tests/runs/test_missed_phase.py
@pytest.mark.parametrize(
    ("on_miss", "attempts", "step"),
    [("rollback", 3, 42), *at_length(("stop", 1, 42), ("extend", 3, 62))],
)
def test_a_missed_phase_is_acted_on_by_the_host(
    here: CommandLine, tmp_path: Path, on_miss: str, attempts: int, step: int
) -> None:
    spec = four_phases(tmp_path)
    sets = [f"phases.mixed.success={MISSED}", f"phases.mixed.on_miss={on_miss}"]
    run = here("launch", spec, "--set", sets[0], "--set", sets[1])["run_id"]
    ended = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert (ended["state"], ended["step"]) == ("stopped", step)
    status = here("status", run, "--detail")
    assert status["reason"] == "phase_missed"
    assert len(status["attempts"]) == attempts
    started_by = {row["by"] for row in status["attempts"][1:]}
    assert started_by == ({f"policy:on_miss {on_miss}"} if attempts > 1 else set())
    refused = here("resume", run, "--set", "phases.base.steps=30", code=1)["error"]
    assert (refused["code"], "phases.base.steps" in refused["message"]) == ("INVALID_VALUE", True)
    here("resume", run, "--set", "phases.anneal.steps=5", "--set", "data.sources.code.weight=3")
    ended = here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert (ended["state"], ended["step"]) == ("completed", step + 21 + 5)


@pytest.mark.engine
def test_the_medical_recipe_rolls_back_where_the_general_loss_worsens(
    here: CommandLine, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path / "base")
    phases = shortened(spec_of("continue-pretraining.md")["phases"], 12)
    phases[0]["lr"] = {"from": 0.003, "to": 0.003, "warmup_steps": 4}
    # A rate by which the general loss worsens at first, and no longer once it is a fourth.
    phases[1]["lr"] = {"from": 0.003, "to": 0.003}
    phases[1]["success"] = {"metric": "val_loss/general", "below": 0.01}
    spec = recipe(
        "continue-pretraining.md",
        tmp_path,
        phases=phases,
        model={"path": str(tmp_path / "base")},
        batch={"tokens": 512},
        checkpoint={"every": 100},
    )
    run = here("launch", spec)["run_id"]
    ended = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert (ended["state"], ended["step"]) == ("stopped", 24)
    status = here("status", run, "--detail")
    assert status["phase"]["verdicts"]["first"].startswith("met: val_loss/general")
    starts = [row["started_at_step"] for row in status["attempts"]]
    assert starts == [0, 12, 12]
    before, after = positions(here, run, [12, 24])
    assert [now - then for then, now in zip(before, after, strict=True)] == [72, 24]


@pytest.mark.long
def test_a_general_loss_that_really_worsens_by_more_than_5_percent_is_rolled_back(
    here: CommandLine, tmp_path: Path
) -> None:
    chosen = random.Random(3)
    numbers = [" ".join(str(chosen.randrange(10**6)) for _ in range(8)) for _ in range(1200)]
    (tmp_path / "medical").mkdir()
    (tmp_path / "medical/numbers.txt").write_text("\n".join(numbers))
    sources = {"general": write_corpus(tmp_path / "general"), "medical": tmp_path / "medical"}
    success = {"metric": "val_loss/general", "not_worse_than_start_pct": 5}
    spec = {
        "name": "forgets",
        "framework": "nanogpt",
        "model": {"n_layer": 1, "n_head": 2, "d_model": 32},
        "data": {
            "sources": [{"name": n, "path": str(p)} for n, p in sources.items()],
            "seq_len": 32,
        },
        "batch": {"tokens": 512},
        "optimizer": {"lr": 0.01},
        "schedule": {"kind": "constant", "warmup_steps": 5},
        "phases": [
            {"name": "general", "steps": 80, "sources": {"general": 1}},
            {
                "name": "medical",
                "steps": 40,
                "sources": {"medical": 1},
                "success": success,
                "on_miss": "rollback",
            },
        ],
        "eval": {"every_steps": 40, "batches": 4},
        "checkpoint": {"every": 40},
        "compute": {"threads": 1},
    }
    run = here("launch", json.dumps(spec))["run_id"]
    ended = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    # Half and a quarter of the rate still forget: what mixes in nothing general can't but.
    assert (ended["state"], ended["step"]) == ("stopped", 120)
    status = here("status", run, "--detail")
    assert status["reason"] == "phase_missed"
    assert [row["started_at_step"] for row in status["attempts"]] == [0, 80, 80]
    verdicts = [
        PhaseChanged.of(Fields(event, "phase"))
        for number in (1, 2, 3)
        for event in events_of(here.folder(run).attempt(number).events)
        if event["kind"] == "phase" and event["action"] == "end" and event["name"] == "medical"
    ]
    assert len(verdicts) == 3
    for verdict in verdicts:
        assert verdict.value is not None and verdict.at_start is not None
        assert verdict.limit == pytest.approx(1.05 * verdict.at_start)
        assert verdict.value > 1.05 * verdict.at_start and verdict.met is False
    assert verdicts[2].value < verdicts[0].value
    rates = here("metrics", run)["phases"]["lr_high"]
    assert rates[1] == pytest.approx(rates[0] / 4)


def events_of(path: Path) -> list[dict[str, Any]]:
    lines, _ = complete_lines(path.read_bytes())
    return [decode(line).document for line in lines]

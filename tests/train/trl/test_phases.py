"""TRL's fine-tuning by a curriculum that mixes the rows of two sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.train.operator_threads import operators_in_this_thread_alone
from support.train.preference_data import (
    SEQ_LEN,
    TrlRun,
    make_run,
    pairs,
    save_tiny_model,
    write_rows,
)

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def make(folder: Path, model: Path, rows: list[Path]) -> TrlRun:
    phase: dict[str, Any] = {"steps": 4, "sequences": 4, "seq_len": SEQ_LEN}
    phases = [
        {**phase, "name": "base", "sources": {"main": 1.0}},
        {**phase, "name": "mixed", "sequences": 8, "sources": {"main": 0.5, "other": 0.5}},
        {**phase, "name": "anneal", "lr": {"kind": "linear", "from": None, "to": 0.0}},
    ]
    return mixing(folder, model, rows, phases, checkpoint={"every": 3, "keep_latest": 9})


def mixing(
    folder: Path, model: Path, rows: list[Path], phases: list[dict[str, Any]], **changes: Any
) -> TrlRun:
    sources = [
        {"name": name, "path": str(path), "format": "jsonl", "weight": 1.0}
        for name, path in zip(("main", "other"), rows, strict=True)
    ]
    data = {"sources": sources}
    return make_run(folder, model, rows[0], "sft", phases=phases, data=data, **changes)


def test_phases_of_rows_are_trained_and_resumed_exactly(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    examples = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(80)]
    rows = [write_rows(tmp_path / f"{n}.jsonl", examples[n::2]) for n in range(2)]
    straight = make(tmp_path / "straight/run", model, rows)
    with operators_in_this_thread_alone():
        assert straight.train() == 0
    ends = [e for e in straight.events() if e["kind"] == "phase" and e["action"] == "end"]
    assert [(end["name"], end["step"]) for end in ends] == [
        ("base", 4),
        ("mixed", 8),
        ("anneal", 12),
    ]
    assert straight.series("lr")[12] == 0.0
    resumed = make(tmp_path / "resumed/run", model, rows)
    kept = "checkpoints/step-00000006"
    shutil.copytree(straight.folder / kept, resumed.folder / kept)
    with operators_in_this_thread_alone():
        assert resumed.train(mode="step", candidates=[6]) == 0
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 6}
    assert {s: loss for s, loss in resumed.series("loss").items() if s > 6} == expected


def test_each_mix_is_realised_in_the_tokens_that_are_trained(tmp_path: Path) -> None:
    """To a thousandth, as the phases' ends report it: rows of each source have one length."""
    texts = ({"prompt": "2 + 2 =", "completion": " 4"}, {"prompt": "one", "completion": " and two"})
    rows = [
        write_rows(tmp_path / f"{n}.jsonl", [{**text, "id": n} for n in range(300)])
        for n, text in enumerate(texts)
    ]
    shares = (1.0, 0.0, 0.9, 0.75, 0.6)
    whole: dict[str, Any] = {"steps": 20, "sequences": 50, "seq_len": SEQ_LEN}
    phases = [
        {**whole, "name": f"p{n}", "sources": {"main": share, "other": 1 - share}}
        for n, share in enumerate(shares)
    ]
    run = mixing(
        tmp_path / "run",
        save_tiny_model(tmp_path / "model"),
        rows,
        phases,
        steps=100,
        batch={"tokens": 50 * SEQ_LEN, "micro_batch": 50, "accumulation": 1},
        eval={"every_steps": 100, "batches": 1},
        checkpoint={"every": 100},
    )
    with operators_in_this_thread_alone():
        assert run.train() == 0
    ends = [e for e in run.events() if e["kind"] == "phase" and e["action"] == "end"]
    tokens = run.series("tokens")
    of_phases = [last - first for first, last in pairwise([0, *(tokens[e["step"]] for e in ends)])]
    of_main, of_other = of_phases[0] / 1000, of_phases[1] / 1000
    assert of_main != of_other
    for share, of_phase, end in zip(shares, of_phases, ends, strict=True):
        trained = (of_phase - 1000 * of_other) / (of_main - of_other)
        assert abs(trained / 1000 - share) <= 0.001
        assert end["drawn"] == pytest.approx({"main": trained, "other": 1000 - trained})

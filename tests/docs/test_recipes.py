"""The first training and the recipes: every command of theirs runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docs.page_stage import PageStage
from support.kaggle.site import KaggleSite
from support.providers.runpod_site import RunPodSite

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_RECIPES = _DOCS / "recipes"


def page(name: str) -> str:
    return (_RECIPES / name).read_text()


@pytest.fixture
def stage(home: Path, tmp_path: Path) -> PageStage:
    return PageStage(home, tmp_path, {}, "")


@pytest.fixture
def renting(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageStage]:
    with RunPodSite() as site:
        monkeypatch.setenv("RUNPOD_API_KEY", site.account_key)
        key = {"RUNPOD_API_KEY": site.account_key}
        yield PageStage(home, tmp_path, key, f"cloud_urls: {{runpod: '{site.url}'}}\n")
        assert site.alive == []


def test_every_recipe_is_in_the_index_and_tried_here() -> None:
    names = {path.name for path in _RECIPES.glob("*.md")} - {"README.md"}
    tried = Path(__file__).read_text()
    assert [name for name in names if f'page("{name}")' not in tried] == []
    index = page("README.md")
    assert [name for name in names if f"]({name})" not in index] == []


def test_the_first_training(stage: PageStage) -> None:
    stage.play((_DOCS / "first-training.md").read_text(), step_s=0.01)
    status = stage.answer("status", "my-gpt", "--detail")
    assert [one["why"] for one in status["attempts"]] == ["launch", "resume", "resume"]


@pytest.mark.long
def test_rent_and_pretrain(renting: PageStage) -> None:
    renting.play(page("rent-and-pretrain.md"))
    (instance,) = renting.answer("costs")["instances"]
    assert (instance["host"], instance["state"]) == ("big", "ended")


@pytest.mark.long
def test_kaggle_over_many_sessions(home: Path, tmp_path: Path, kaggle_site: KaggleSite) -> None:
    stage = PageStage(home, tmp_path, kaggle_site.environment, "")
    stage.play(page("kaggle.md"))
    assert "plan gpt.yaml --host kaggle" in stage.ran


def test_train_by_a_curriculum(stage: PageStage) -> None:
    stage.play(page("curriculum.md"))
    assert stage.answer("status", "curriculum")["phase"]["name"] == "anneal"


def test_continue_pretraining(stage: PageStage) -> None:
    stage.play(page("continue-pretraining.md"))
    assert stage.answer("status", "medical")["step"] == 180


def test_attach(stage: PageStage) -> None:
    stage.play(page("attach.md"))
    assert stage.answer("status", "theirs")["step"] == 49
    assert len(stage.answer("alerts", "list", "theirs")["alerts"]) >= 2


@pytest.mark.long
def test_recover_from_a_spike(stage: PageStage) -> None:
    # One that stays, however long the commands take.
    lasting = " ".join(f"spike@{step}" for step in range(60, 2000, 60))
    stage.play(page("spike.md"), faults=lasting, step_s=0.02, steps=2000)
    attempts = stage.answer("status", "gpt", "--detail")["attempts"]
    assert [one["why"] for one in attempts] == ["launch", "loss_spike"]


def test_out_of_memory_on_a_shared_machine(stage: PageStage) -> None:
    stage.play(page("out-of-memory.md"), faults="oom@30")
    assert stage.answer("status", "gpt")["state"] == "completed"
    changed = stage.answer("status", "careful", "--detail")["attempts"][-1]["set"]
    assert changed["batch.micro_batch"] == 8


def test_fine_tune_and_export(stage: PageStage, tmp_path: Path) -> None:
    stage.play(page("fine-tune.md"))
    assert any((tmp_path / "out").rglob("model.bin"))

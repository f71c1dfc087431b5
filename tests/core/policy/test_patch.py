from __future__ import annotations

import copy
from typing import Any

import pytest

from trainer_runtime.core.policy.patch import PatchError, apply_sets

CONFIG: dict[str, Any] = {
    "steps": 100,
    "optimizer": {"lr": 0.001, "betas": [0.9, 0.95]},
    "data": {"sources": [{"name": "main", "weight": 1.0}, {"name": "code", "weight": 2.0}]},
}


def test_dotted_names_lead_into_sections_and_named_list_items() -> None:
    changed = apply_sets(CONFIG, {"optimizer.lr": 0.01, "data.sources.code.weight": 3.0})
    assert changed["optimizer"]["lr"] == 0.01
    assert [source["weight"] for source in changed["data"]["sources"]] == [1.0, 3.0]


def test_the_original_stays_as_it_was() -> None:
    before = copy.deepcopy(CONFIG)
    betas = [0.8, 0.9]
    changed = apply_sets(CONFIG, {"optimizer.betas": betas, "steps": 7})
    betas.append(1.0)
    assert before == CONFIG
    assert changed["optimizer"]["betas"] == [0.8, 0.9]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("optimiser.lr", "optimiser"),
        ("optimizer.momentum", "momentum"),
        ("data.sources.wiki.weight", "wiki"),
        ("steps.more", "more"),
        ("", ""),
    ],
)
def test_an_unknown_name_is_reported_with_the_part_that_fails(name: str, missing: str) -> None:
    with pytest.raises(PatchError, match=f"there is no `{missing}`"):
        apply_sets(CONFIG, {name: 1})


def test_a_list_item_as_a_whole_is_not_replaced() -> None:
    with pytest.raises(PatchError):
        apply_sets(CONFIG, {"data.sources.main": {"name": "other"}})

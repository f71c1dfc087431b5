from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import AdapterConfig, RunConfig, Skip
from trainer_runtime.core.decoding import DecodingError

GOLDEN = Path(__file__).parents[2] / "golden/render/config.json"


def test_what_the_plan_has_written_is_read_by_its_types() -> None:
    written = json.loads(GOLDEN.read_bytes())
    config = RunConfig.parse(GOLDEN.read_bytes())
    assert (config.framework, config.steps) == (written["framework"], written["steps"])
    assert config.optimizer.lr == written["optimizer"]["lr"]
    assert config.data.sources[0].path == written["data"]["sources"][0]["path"]
    assert config.recovery.max_restarts == written["recovery"]["max_restarts"]
    assert config.environment is not None
    assert config.environment.mode == written["environment"]["mode"]
    assert config.document == written
    assert not config.attempt.is_recorded


def test_a_configuration_of_nothing_has_the_defaults() -> None:
    config = RunConfig.parse({})
    assert (config.method, config.compute.processes, config.compute.strategy) == (
        "pretrain",
        1,
        "single",
    )
    assert (config.steps, config.adapter, config.environment) == (0, None, None)


def test_fields_of_a_later_version_are_ignored() -> None:
    assert RunConfig.parse({"steps": 5, "novelty": {"steps": "x"}}).steps == 5


def test_a_digest_leaves_the_attempt_out() -> None:
    first = RunConfig.parse({"steps": 5, "attempt": {"number": 1}})
    second = RunConfig.parse({"steps": 5, "attempt": {"number": 2, "resume": {"candidates": [3]}}})
    assert first.sha256 == second.sha256 != RunConfig.parse({"steps": 6}).sha256
    assert (second.attempt.number, second.attempt.resume.candidates) == (2, (3,))


def test_configurations_of_earlier_versions_name_an_interpreter_alone() -> None:
    old = RunConfig.parse({"environment": {"python": "/opt/bin/python"}}).environment
    assert old is not None
    assert (old.mode, old.python, old.is_fixed) == ("existing", "/opt/bin/python", True)
    named = RunConfig.parse({"environment": "auto"}).environment
    assert named is not None and named.mode == "auto"


def test_lists_become_typed_items() -> None:
    skips = [{"at_step": 5, "sequences": 8}]
    config = RunConfig.parse({"data": {"skip": skips}, "adapter": {"r": 8, "alpha": 16}})
    assert config.data.skip == (Skip(5, 8),)
    assert config.adapter == AdapterConfig("lora", 8, 16.0)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"steps": "many"}, "config.json: steps is not an integer"),
        ({"optimizer": {"lr": "1e-3"}}, "config.json: optimizer.lr is not a number"),
        ({"optimizer": {"betas": [0.9]}}, "config.json: optimizer.betas is not two numbers"),
        (
            {"data": {"sources": [{"name": "a"}, {"path": "/b"}]}},
            "config.json: data.sources[1].name is missing",
        ),
        ({"compute": []}, "config.json: compute is not an object"),
        ({"env": {"A": 1}}, "config.json: env.A is not a string"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_path(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DecodingError) as error:
        RunConfig.parse(document)
    assert str(error.value) == problem

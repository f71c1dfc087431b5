"""What a framework needs, what an interpreter must have, and what is said where it hasn't."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from trainmaster.plan.decisions.requirements import (
    PACKAGES,
    accepted,
    frameworks_there,
    mismatches,
    requirements,
)
from trainmaster.plan.frameworks import FRAMEWORKS

REPOSITORY = Path(__file__).parents[2]


def test_the_versions_are_those_that_the_tests_run_with() -> None:
    constraints = dict(
        line.split("==")
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    versions = {name: package.tried for name, package in PACKAGES.items()}
    assert {name: constraints[name] for name in versions} == versions
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["frameworks"]
    assert {package.line for name, package in PACKAGES.items() if name != "deepspeed"} == {
        line for line in extra if "==" in line
    }


def test_nanogpt_needs_pytorch_alone() -> None:
    assert requirements(FRAMEWORKS["nanogpt"]) == ()


def test_each_framework_gets_what_its_choices_take() -> None:
    assert requirements(FRAMEWORKS["litgpt"], adapter={"quantize": None}) == ("litgpt==0.5.13",)
    assert requirements(FRAMEWORKS["hf"]) == (
        "transformers==5.3.0",
        "accelerate==1.15.0",
        "datasets==5.0.1",
    )
    wanted = requirements(
        FRAMEWORKS["trl"],
        strategy="zero3_offload",
        adapter={"quantize": "nf4"},
        tracking={"wandb": {}},
    )
    assert {"trl==1.16.0", "peft==0.21.2", "deepspeed==0.19.8"} <= set(wanted)
    assert wanted[-2].startswith("bitsandbytes>")
    assert wanted[-1].startswith("wandb>")


def test_data_brings_its_readers_with_it() -> None:
    assert requirements(FRAMEWORKS["nanogpt"], tokenizer="gpt2") == ("transformers==5.3.0",)
    assert requirements(FRAMEWORKS["litgpt"], formats={"parquet", "text"})[-1] == "datasets==5.0.1"


def test_trackers_that_are_off_bring_nothing() -> None:
    assert requirements(FRAMEWORKS["nanogpt"], tracking={"tensorboard": False, "wandb": None}) == ()


@pytest.mark.parametrize(
    ("package", "version", "fits"),
    [
        ("transformers", "4.57.1", True),
        ("transformers", "5.23.0", True),
        ("transformers", "4.40.0", False),
        ("transformers", "6.0.0", False),
        ("trl", "1.2.0", True),
        ("trl", "0.24.0", False),
        ("litgpt", "0.5.12", False),
        ("litgpt", "0.5.13", True),
    ],
)
def test_what_is_taken_as_it_is_may_be_another_version_within_bounds(
    package: str, version: str, fits: bool
) -> None:
    lines = accepted([PACKAGES[package].line, "wandb>=0.22,<0.32"])
    found = mismatches(lines, {package: version, "wandb": "0.30.0"})
    assert [item.name for item in found] == ([] if fits else [package])


def test_a_package_that_is_missing_is_reported_with_the_wanted_version() -> None:
    (found,) = mismatches(["trl==1.16.0"], {"transformers": "5.3.0"})
    assert (found.name, found.there, found.wanted) == ("trl", None, "==1.16.0")


def test_what_a_host_can_run_goes_by_what_it_has() -> None:
    assert frameworks_there({}) == ["nanogpt"]
    of_hf = {"transformers": "4.57.0", "accelerate": "1.12.0", "datasets": "4.8.0"}
    assert frameworks_there(of_hf) == ["nanogpt", "hf"]
    assert frameworks_there({**of_hf, "trl": "1.16.0", "litgpt": "0.5.12"})[1:] == ["hf", "trl"]

from __future__ import annotations

import itertools
from pathlib import Path

import tomllib

from trainer_runtime.core.environment.lock import (
    LockedPackage,
    is_of_torch,
    locked,
    locked_packages,
    parse_lock,
)
from trainer_runtime.core.environment.requirements import name_of
from trainmaster.plan.decisions.requirements import PACKAGES, requirements
from trainmaster.plan.frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[3]
_LOCKS = (
    "requirements-dev.lock",
    "trainer_runtime/core/environment/packages.lock",
    "tests/support/plan/skypilot.lock",
)
TEXT = """\
# a comment
one==1.0 ; python_full_version < '3.11' \\
    --hash=sha256:{a}
    # via -r wanted.txt
one==1.1 ; python_full_version >= '3.11' \\
    --hash=sha256:{b} \\
    --hash=sha256:{c}
two==2.0 \\
    --hash=sha256:{a}
    # via
    #   one
    #   torch
three==3.0 --hash=sha256:{a}
    # via two
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


def test_a_lock_is_read_as_it_is_written() -> None:
    found = parse_lock(TEXT)
    assert [one.requirement for one in found[:2]] == [
        "one==1.0 ; python_full_version < '3.11'",
        "one==1.1 ; python_full_version >= '3.11'",
    ]
    assert found[3] == LockedPackage("three==3.0", ("a" * 64,), ("two",))
    assert found[1].sha256 == ("b" * 64, "c" * 64)
    assert [one.asked_by for one in found] == [(), (), ("one", "torch"), ("two",)]
    assert parse_lock("".join(f"{one}\n" for one in found)) == found


def test_a_selection_holds_all_that_its_packages_ask_for() -> None:
    packages = parse_lock(TEXT)
    assert [one.name for one in locked(["two==2.0"], packages) or ()] == ["two", "three"]
    assert [one.name for one in locked(["torch==9", "one"], packages) or ()] == [
        "one",
        "one",
        "two",
        "three",
    ]
    assert locked(["two==2.1"], packages) is None
    assert locked(["four"], packages) is None
    assert locked(["--index-url=x"], packages) is None


def test_all_that_a_plan_may_ask_for_is_locked_by_digest() -> None:
    trackers = ({}, {"tensorboard": True}, {"wandb": {}})
    adapters = (None, {"rank": 8}, {"rank": 8, "quantize": "nf4"})
    frameworks, strategies = ("nanogpt", "litgpt", "hf", "trl"), ("single", "zero2")
    chosen = itertools.product(frameworks, strategies, adapters, trackers, ("byte", "hub"))
    for framework, strategy, adapter, tracking, tokenizer in chosen:
        lines = requirements(
            FRAMEWORKS[framework],
            strategy=strategy,
            adapter=adapter,
            tracking=tracking,
            tokenizer=tokenizer,
            tokenizer_packages=() if tokenizer == "byte" else ("sentencepiece", "protobuf"),
            formats={"parquet"},
            compression={"gzip", "zstd"},
        )
        found = locked(["torch==2.13.0", *lines])
        assert found is not None, lines
        assert {name_of(line) for line in lines} <= {one.name for one in found}
        assert all(one.sha256 for one in found)


def test_the_locks_hold_the_versions_that_were_tried_and_no_address() -> None:
    versions = {one.name: one.version for one in locked_packages()}
    assert versions.items() >= {(package.name, package.tried) for package in PACKAGES.values()}
    assert not any(is_of_torch(one.name) for one in locked_packages())
    for path in _LOCKS:
        assert "://" not in (ROOT / path).read_text()


def test_every_line_of_a_lock_has_a_digest() -> None:
    for path in _LOCKS:
        found = parse_lock((ROOT / path).read_text())
        assert found and all(one.sha256 for one in found), path
        assert not any(is_of_torch(one.name) for one in found), path


def test_the_lock_for_development_covers_every_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *itertools.chain(*extras.values())]
    known = {one.name for one in parse_lock((ROOT / "requirements-dev.lock").read_text())}
    names = {name_of(line.partition("[")[0]) for line in lines}
    assert {name for name in names if name and not is_of_torch(name)} - known <= {"trainmaster"}

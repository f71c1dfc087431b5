"""Requirement lines, held against `packaging`, which pip itself goes by."""

from __future__ import annotations

import random

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from trainer_runtime.core.environment.requirements import (
    name_of,
    requirement_lines,
    satisfied,
    unsatisfied,
)
from trainer_runtime.core.environment.torch_builds import torch_bound

_VERSIONS = [
    *("1", "1.0", "1.0.0", "1.2", "1.2.3", "1.10", "2", "2.0.1", "2.9", "2.10.0", "2.13.0+cpu"),
    *("2.9rc1", "2.9.0.dev3", "2.9.post1", "1.2a1", "1.2.b2", "2.9a1.dev2", "2.5.0a0+872d972e41"),
    *("2024.6.1", "0.0", "10.1", "2.0.0.post2.dev1"),
]
_OPERATORS = ("==", "!=", "<=", ">=", "<", ">", "~=")


def test_versions_are_compared_as_pip_compares_them() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    for _ in range(20_000):
        have = chosen.choice(_VERSIONS)
        operator, want = chosen.choice(_OPERATORS), chosen.choice(_VERSIONS)
        if operator == "~=" and len(Version(want).release) < 2:
            continue
        if operator not in ("==", "!="):
            want = want.split("+")[0]
        if operator in ("==", "!=") and chosen.random() < 0.2:
            want = ".".join(map(str, Version(want).release)) + ".*"
        line = f"torch{operator}{want}"
        expected = Requirement(line).specifier.contains(Version(have), prereleases=True)
        ours = satisfied(line, {"torch": have})
        assert not ours or expected, (have, line)  # never sure of what is not so
        if have.replace(".", "").isdigit() and want.replace(".", "").rstrip("*").isdigit():
            assert ours == expected, (have, line)


@pytest.mark.parametrize(
    "line",
    [
        "torch[extra]",
        "torch ; python_version < '3'",
        "torch @ https://example.org/torch.whl",
        "torch===2.13.0",
        "./torch",
        "torch >= 2, nonsense",
        "torch-geometric",
        "",
    ],
)
def test_what_is_not_plainly_met_counts_as_not_met(line: str) -> None:
    assert not satisfied(line, {"torch": "2.13.0"})


def test_lines_are_read_as_pip_reads_them() -> None:
    text = "# all of it\nTorch_X>=1,\\\n  <2  # why\n\n--pre\n-i https://example.org/a#b\n"
    lines = requirement_lines(text)
    assert [line.split() for line in lines] == [
        ["Torch_X>=1,", "<2"],
        ["--pre"],
        ["-i", "https://example.org/a#b"],
    ]
    assert unsatisfied(lines, {"torch-x": "1.5"}) == []
    assert [name_of(line) for line in lines] == ["torch-x", None, None]


@pytest.mark.parametrize(
    ("driver", "bound"),
    [
        ("580.65.06", ""),
        ("610.1", ""),
        ("575.57", "<2.11"),
        ("525.60.13", "<2.11"),
        ("470.82", None),
        ("", ""),
    ],
)
def test_a_driver_bounds_the_torch_that_it_can_run(driver: str, bound: str | None) -> None:
    assert torch_bound(driver) == bound

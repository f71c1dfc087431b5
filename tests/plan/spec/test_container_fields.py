"""What a spec says of its container: what is refused before anything starts."""

from __future__ import annotations

import pytest

from trainmaster.errors.errors import SpecError
from trainmaster.plan.spec import load_spec

_SPEC = """\
name: boxed
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: /corpus}]}
steps: 10
compute: {launcher: docker, image: "pytorch/pytorch:2.9.1"}
"""


def refusal(*sets: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(_SPEC, sets)
    return caught.value


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
        "ghcr.io/someone/train_er__x:v1",
        "registry.example:5000/a/b-c.d@sha256:" + 64 * "a",
        "localhost/mine",
        "nvcr.io/nvidia/pytorch:25.01-py3",
    ],
)
def test_names_of_images_are_taken_as_registries_know_them(image: str) -> None:
    assert load_spec(_SPEC, [f'compute.image="{image}"']).compute.image == image


@pytest.mark.parametrize(
    "image",
    [
        "Pytorch",
        "pytorch/Pytorch:2",
        "a b",
        "--privileged",
        "-v",
        "image:",
        "image:tag:tag",
        "image@sha256:123",
        "https://ghcr.io/a/b",
        "a//b",
        "../image",
        "image\\n",
        "user:password@registry/a",
        "$(reboot)",
        "a" * 300,
        "",
    ],
)
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    error = refusal(f'compute.image="{image}"')
    assert (error.code, error.field) == ("INVALID_VALUE", "compute.image")
    assert "pytorch/pytorch:" in error.fix


@pytest.mark.parametrize(
    ("sets", "code", "field"),
    [
        (["compute.image=null"], "MISSING_FIELD", "compute.image"),
        (["compute.launcher=process"], "INVALID_VALUE", "compute.image"),
        (["compute={shm_size: 8g}"], "INVALID_VALUE", "compute.shm_size"),
        (["compute.shm_size=8"], "WRONG_TYPE", "compute.shm_size"),
        (["compute.shm_size=lots"], "INVALID_VALUE", "compute.shm_size"),
        (["compute.shm_size=-1g"], "INVALID_VALUE", "compute.shm_size"),
        (["host=kaggle"], "INVALID_VALUE", "compute.launcher"),
        (["compute.nodes=2"], "INVALID_VALUE", "compute.launcher"),
        (["host=[gpu1, gpu2]"], "INVALID_VALUE", "compute.launcher"),
        (["environment=existing"], "INVALID_VALUE", "environment"),
        (["environment={python: /usr/bin/python3}"], "INVALID_VALUE", "environment"),
        (["environment={setup: setup.sh}"], "INVALID_VALUE", "environment"),
        (["pty=true"], "INVALID_VALUE", "pty"),
    ],
)
def test_what_contradicts_the_container_is_refused_by_its_field(
    sets: list[str], code: str, field: str
) -> None:
    error = refusal(*sets)
    assert (error.code, error.field) == (code, field), error.message
    assert error.fix

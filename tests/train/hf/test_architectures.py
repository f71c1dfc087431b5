"""Transformers' architectures from scratch by HF Trainer: a step, a save, a resume, ./final."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.plan.architectures import SMALL
from support.session.tiers import at_length
from support.train.hf_attempts import Attempts, CrashError, crash

from trainmaster.plan.transformers_architectures import whole_config

ARCHITECTURES = ["qwen3", *at_length(*(name for name in SMALL if name != "qwen3"))]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("architectures")
    config = prepared_config(folder, "hf", Path(__file__).read_bytes() * 3)
    changes = {"steps": 4, "eval__every_steps": 4, "eval__batches": 1, "checkpoint__every": 2}
    return changed(config, changes)


@pytest.fixture
def make_run(tmp_path: Path, base: Config) -> Callable[..., RunFolder]:
    def make(name: str, model: dict[str, Any], **changes: Any) -> RunFolder:
        return RunFolder(tmp_path / name, changed({**base, "model": model}, changes))

    return make


def described(arch: str, **more: Any) -> dict[str, Any]:
    """The section of a resolved configuration."""
    whole = whole_config(arch, {**SMALL[arch], "vocab_size": 320, **more})
    names = {*SMALL[arch], "vocab_size", *more} | {"num_key_value_heads"} & whole.keys()
    return {"arch": arch, "config": {name: whole[name] for name in names}, "style": None}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_architecture_trains_and_continues_after_a_kill(
    make_run: Callable[..., RunFolder], arch: str
) -> None:
    from transformers import AutoModelForCausalLM

    attempt = Attempts()
    straight, killed = (make_run(name, described(arch)) for name in ("straight", "killed"))
    assert attempt(straight) == 0, attempt.errors
    with pytest.raises(CrashError):
        attempt(killed, disturbance=(3, crash))
    assert killed.steps_stored() == [2]
    assert attempt(killed) == 0, attempt.errors
    assert killed.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    model, found = AutoModelForCausalLM.from_pretrained(
        killed.folder / "final", output_loading_info=True
    )
    assert not any(found.values())
    assert model.config.model_type == arch
    assert killed.events()[0]["parameters"] == model.num_parameters()
    with torch.no_grad():
        assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_what_the_hosts_transformers_lacks_is_refused_before_the_training(
    make_run: Callable[..., RunFolder],
) -> None:
    attempt = Attempts()
    for model, words in (
        ({"arch": "qwen9", "config": {}}, "qwen9"),
        (described("qwen3") | {"config": {"hidden_sizes": 3}}, "no field hidden_sizes"),
    ):
        run = make_run(words.split()[-1], model)
        assert attempt(run) == 77
        assert words in attempt.errors
        assert not [event for event in run.events() if event["kind"] == "started"]

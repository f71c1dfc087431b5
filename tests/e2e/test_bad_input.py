"""Bad input is refused with its field and a remedy, and nothing is started or recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.running_run import CommandLine, small_spec

REFUSED = {
    "unknown key": ("optimiser.lr=0.1", "UNKNOWN_KEY", "optimiser"),
    "unknown key inside": ("model.n_layers=3", "UNKNOWN_KEY", "model.n_layers"),
    "wrong type": ("model.n_layer=many", "WRONG_TYPE", "model.n_layer"),
    "heads that do not divide the width": ("model.n_head=5", "INVALID_VALUE", "model.n_head"),
    "a vocabulary too small": ("model.vocab_size=100", "VOCABULARY_TOO_SMALL", "model.vocab_size"),
    "missing data": ("data.sources[0].path=/nowhere", "DATA_MISSING", "data.sources[0].path"),
    "two lengths": ("tokens=4096", "INVALID_VALUE", ""),
    "no length": ("steps=null", "", ""),
    "a value not built yet": ("optimizer.name=sophia", "NOT_YET_SUPPORTED", "optimizer.name"),
    "a field not built yet": ("tracking={tensorboard: true}", "NOT_YET_SUPPORTED", "tracking"),
    "a host nobody knows": ("host=gpu7", "HOST_UNKNOWN", ""),
    "more than the memory": ("model.d_model=65536", "DOES_NOT_FIT", ""),
    "a secret in plain sight": ("env.HF_TOKEN=hf_x", "SECRET_IN_SPEC", "env"),
    "a name that is a path": ("name=../x", "INVALID_VALUE", "name"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_field_and_remedy_and_nothing_starts(
    what: str, command: CommandLine, tmp_path: Path
) -> None:
    setting, code, field = REFUSED[what]
    spec = small_spec(tmp_path)
    for verb in ("plan", "launch"):
        error = command(verb, spec, "--set", setting, code=1)["error"]
        assert error["code"] == (code or error["code"])
        assert error["fix"] and error["retryable"] is False
        assert field in (error.get("field") or error["message"])
    assert command("runs")["runs"] == []
    assert not (command.home / "local" / "runs").exists()


@pytest.mark.parametrize(
    ("text", "code"), [(None, "DATA_EMPTY"), ("too short for a sequence", "DATA_TOO_SHORT")]
)
def test_a_folder_with_too_little_in_it_is_refused(
    text: str | None, code: str, command: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "little"
    folder.mkdir()
    if text is not None:
        (folder / "a.txt").write_text(text)
    setting = f"data.sources[0].path={folder}"
    error = command("launch", small_spec(tmp_path), "--set", setting, code=1)["error"]
    assert (error["code"], error["field"]) == (code, "data.sources[0].path")
    assert command("runs")["runs"] == []

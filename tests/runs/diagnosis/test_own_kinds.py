"""Kinds that a user adds in the home are tried like ours; a bad row is refused with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.core.failure_samples import FAILURES
from support.runs.running_run import small_spec

from trainmaster.cli import run as command_line
from trainmaster.runs.diagnose import diagnose
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import Workspace

_ROW: dict[str, Any] = {
    "code": "proxy_refused",
    "says": "The company's proxy refused the request.",
    "advice": ["Set HTTPS_PROXY to the proxy of this site."],
    "when": r"\bproxy\.example refused (?:CONNECT|GET)\b",
    "example": "OSError: proxy.example refused CONNECT to huggingface.co",
}


@pytest.fixture
def kinds(workspace: Workspace) -> Path:
    workspace.home.kinds.write_text(json.dumps([_ROW]))
    return workspace.home.kinds


def _diagnosed(capsys: pytest.CaptureFixture[str], log: Path, code: int = 0) -> dict[str, Any]:
    assert command_line(("diagnose", str(log), "--json")) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_users_kind_is_found_with_its_own_words(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 9 loss 2.0\n[rank0]: {_ROW['example']}\n")
    (finding,) = _diagnosed(capsys, log)["findings"]
    assert (finding["code"], finding["confidence"]) == ("proxy_refused", 0.8)
    assert finding["explanation"].startswith(_ROW["says"])
    assert finding["advice"] == _ROW["advice"]


def test_a_sentence_of_the_exception_may_continue_after_a_users_kind(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    said = "OSError: no route. proxy.example refused GET because the token is old"
    log.write_text(f"step 9 loss 2.0\n{said}\n")
    (finding,) = _diagnosed(capsys, log)["findings"]
    assert finding["code"] == "proxy_refused"
    log.write_text("step 9 loss 2.0\nproxy.example refused GET because the token is old, he said\n")
    assert _diagnosed(capsys, log)["findings"] == []


def test_our_kinds_are_found_as_without_them(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 9 loss 2.0\n{FAILURES['cuda_oom'][0]}\n")
    assert [one["code"] for one in _diagnosed(capsys, log)["findings"]] == ["cuda_oom"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"code": "cuda_oom"}, "code: .* is a code of the catalogue"),
        ({"code": "Proxy"}, "code: "),
        ({"when": "("}, "when: .* not a regular expression"),
        ({"when": r"\w+"}, "when: .* no whole word"),
        ({"when": r"\bproxy .*x.*y.*z.*refused\b"}, "when: .* may take without bound"),
        ({"example": "all is well"}, "example: "),
        ({"advice": []}, "advice: "),
        ({"confidnce": 0.9}, "confidnce: "),
    ],
)
def test_a_bad_row_is_refused_with_place_and_remedy(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, why: str
) -> None:
    second = {**_ROW, "code": "another", **change}
    kinds.write_text(json.dumps([_ROW, second]))
    log = tmp_path / "train.log"
    log.write_text("step 9 loss 2.0\n")
    error = _diagnosed(capsys, log, code=1)["error"]
    assert error["code"] == "KIND_INVALID"
    assert f"{kinds}, row 2" in error["message"]
    assert re.search(why, error["message"])
    assert "docs/diagnosis.md" in error["fix"]


def test_a_users_kind_is_found_in_a_run(workspace: Workspace, tmp_path: Path) -> None:
    row = {**_ROW, "when": r"^step 4\d\b", "example": "step 45: loss 2.0"}
    workspace.home.kinds.write_text(json.dumps([row]))
    env = '{TRAINMASTER_STEP_S: "0", TRAINMASTER_FAULTS: "unusable@45"}'

    async def work() -> list[str]:
        spec = small_spec(tmp_path, host="debug", env=env)
        run = (await launch(workspace, spec)).run_id
        await wait_for_event(workspace, run, until=["end"], timeout_s=60)
        return [one.code for one in (await diagnose(workspace, run)).findings]

    assert "proxy_refused" in anyio.run(work)

"""`sample` on the host: a bounded process of the run's environment, whose words are masked."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest
from support.programs.python_script import python_script

from trainer_runtime.core.answers.sampled import SampleRequest
from trainer_runtime.host.answer.sample import sample

_ANSWER = {"path": "final", "step": 6, "device": "cpu"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was given a secret."""
    attempt = tmp_path / "run" / "attempts" / "1"
    attempt.mkdir(parents=True)
    for folder in (tmp_path / "run", attempt):
        (folder / "config.json").write_text(json.dumps({"config_version": 1, "run_id": "r-abc"}))
    (tmp_path / "run" / ".secrets.json").write_text(json.dumps({"values": {"KEY": "swordfish"}}))
    return tmp_path / "run"


def environment(run: Path, program: str) -> None:
    """Lets `program` be what runs as the training's interpreter; it notes what it was given."""
    python = run.parent / "python"
    python.write_text(python_script(f"import sys, json, time\n{program}\n"))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    settled = {"python": str(python), "variables": {}}
    (run / "attempts/1/environment.json").write_text(json.dumps(settled))


def asked(run: Path, **given: object) -> dict[str, object]:
    return sample(run, SampleRequest("to be; $(id)", **given))  # type: ignore[arg-type]


def test_the_prompt_travels_in_a_file_and_secrets_are_masked(run: Path) -> None:
    text = {"text": "it is swordfish", "tokens": 3, "ended": "max_tokens"}
    answer = json.dumps({**_ANSWER, "texts": [text]})
    environment(
        run,
        "request = json.load(open(sys.argv[-1]))\n"
        "assert request['prompt'] == 'to be; $(id)' and 'to be' not in ' '.join(sys.argv)\n"
        f"print('a warning of some package'); print({answer!r})",
    )
    found = asked(run)
    assert found["texts"] == [{**text, "text": "it is *********"}]
    assert (found["path"], found["step"]) == ("final", 6)
    assert not list(run.glob(".trainmaster-*"))


def test_a_reason_is_answered_in_its_own_words_without_control_characters(run: Path) -> None:
    environment(run, "print('\\x1b[2Jno such model', file=sys.stderr); sys.exit(77)")
    assert asked(run) == {"error": "no such model"}


def test_what_prints_no_answer_and_what_is_of_an_earlier_version_is_an_error(run: Path) -> None:
    environment(run, "print('{\"path\": 7}')")
    assert "error" in asked(run)
    environment(
        run,
        "print('python: No module named trainer_runtime.train.sample', file=sys.stderr)\n"
        "sys.exit(1)",
    )
    assert "version that launched it" in str(asked(run)["error"])


def test_a_process_that_hangs_is_ended_with_its_call(run: Path) -> None:
    environment(run, "open(sys.argv[0] + '.began', 'w').close(); time.sleep(600)")
    began = time.monotonic()
    assert asked(run, within_s=0.5) == {"error": "it was not done within 0.5 s"}
    assert time.monotonic() - began < 60
    assert (run.parent / "python.began").exists()

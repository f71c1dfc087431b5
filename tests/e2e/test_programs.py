"""Programs of others that are run as they are: killed, stopped, torn and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.host.foreign_program import (
    TRAINER,
    committed,
    events,
    kill_program,
    program_spec,
    saved_at,
    standing,
    started,
    trainer_spec,
    with_data,
    write_program,
)
from support.runs.running_run import LONGEST_S, CommandLine, kill, processes_of, wait_until
from support.session.tiers import at_length

from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.script.seal import PRUNED

pytestmark = pytest.mark.slow


def test_a_program_travels_to_a_host_by_its_commit(remote: CommandLine, tmp_path: Path) -> None:
    program = write_program(tmp_path / "program")
    (program / ".gitignore").write_text("__pycache__/\ndata/\n")
    (program / "data").mkdir()
    (program / "data" / "tokens.bin").write_bytes(bytes(1000))
    commit = committed(program)
    given = with_data(program_spec(program, "--data", "{data}", steps=12, host="gpu1"), tmp_path)
    run = remote("launch", given)["run_id"]
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    status = remote("status", run, "--detail")
    assert (status["state"], status["step"], status["code"]) == ("completed", 12, commit[:12])
    sent = sorted(one.name for one in Path(status["folder"], "code").iterdir() if one.is_file())
    assert sent == [".gitignore", "loop.py", "report.py"]
    rows = remote("runs", "--code", commit[:8])["runs"]
    assert [row["run_id"] for row in rows] == [run]
    assert remote("runs", "--code", "0123abcd")["runs"] == []


def test_a_program_is_resumed_from_its_own_checkpoint_however_it_ends(
    here: CommandLine, tmp_path: Path
) -> None:
    """Killed, then stopped, then with a torn checkpoint: the one before is put back."""
    program = write_program(tmp_path / "program")
    run = here("launch", program_spec(program, "--stand-at", "25", "--reports"))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    standing(here, run, 25)
    kill_program(folder)
    assert started(here, folder, 2)["resumed_from"] == 20
    standing(here, run, 25)
    assert not (folder / "code" / "__pycache__" / "loop.pyc").exists()
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "stopped"
    saved = folder / "code" / "out" / "ckpt.pt"
    whole = saved.read_bytes()
    saved.write_bytes(whole[:500])
    (folder / "code" / "go").touch()  # it stands no longer
    (folder / "checkpoints" / PRUNED).write_text('{"steps": [10, 20]}')  # of one that was killed
    here("resume", run)
    begun = started(here, folder, 3)
    assert begun["resumed_from"] == 20
    pruned = [one["step"] for one in events(folder, 3, "checkpoint") if one["action"] == "pruned"]
    assert pruned[:1] == [10]
    torn = "ckpt.pt is torn: its list of records is not whole"
    assert [one["reason"] for one in begun["skipped"]] == [torn]
    assert (folder / "refused" / "ckpt.pt").read_bytes() == whole[:500]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    series = here("metrics", run, "--key", "loss", "--key", "own", "--all")["runs"][run]
    assert series["own"]["steps"] == series["own"]["values"] == list(range(1, 41))
    assert set(series["loss"]["values"]) == {5.0}  # its own, not that of the log
    listed = here("checkpoints", run, "--verify")
    assert listed["checkpoints"][-1]["step"] == listed["resume_from"] == 40
    assert len(listed["checkpoints"]) == 2
    fetched = tmp_path / "fetched"
    here("fetch", run, "final", str(fetched))
    assert [path.read_text() for path in fetched.rglob("model.txt")] == ["trained"]


@pytest.mark.long
@pytest.mark.parametrize("words", [["--reports"], *at_length([])])
def test_steps_that_a_killed_relay_has_not_recorded_are_not_lost(
    here: CommandLine, tmp_path: Path, words: list[str]
) -> None:
    program = write_program(tmp_path / "program")
    run = here("launch", program_spec(program, "--stand-at", "5", *words))["run_id"]
    folder = RunFolder(Path(here("status", run, "--detail")["folder"]))
    standing(here, run, 5)
    relay = processes_of(folder)["trainer"]
    os.kill(relay, signal.SIGSTOP)
    (folder.root / "code" / "go").touch()
    ended = folder.root / "code" / "out" / "final" / "model.txt"
    wait_until(ended.exists, "the program's end", LONGEST_S)
    kill(relay)
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert started(here, folder.root, 2)["resumed_from"] == 40
    series = here("metrics", run, "--key", "loss", "--all")["runs"][run]
    assert series["loss"]["steps"] == list(range(1, 41))


@pytest.mark.long
def test_a_folder_that_was_torn_is_passed_over_for_the_one_before(
    here: CommandLine, tmp_path: Path
) -> None:
    """In the shape of Hugging Face Trainer: its newest folder loses a byte while it is killed."""
    program = tmp_path / "trainer"
    program.mkdir()
    (program / "train.py").write_text(TRAINER)
    run = here("launch", trainer_spec(program))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    saved_at(here, run, 1, step=20)
    newest = folder / "code" / "out" / "checkpoint-20" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    kill_program(folder)
    begun = started(here, folder, 2)
    assert begun["resumed_from"] == 10
    assert "85 bytes instead of 86" in begun["skipped"][0]["reason"]
    (folder / "code" / "go").touch()
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert [one["step"] for one in here("checkpoints", run)["checkpoints"]] == [10, 20, 30, 40]
    fetched = tmp_path / "fetched"
    here("fetch", run, "final", str(fetched))
    assert [path.name for path in fetched.rglob("*") if path.is_file()] == ["model.safetensors"]


@pytest.mark.long
def test_a_rendered_program_is_run_by_hand_from_another_place(
    here: CommandLine, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "program")
    spec = tmp_path / "spec.yaml"
    words = ("--reports", "--data", "{data.tokens.txt}")
    text = with_data(program_spec(program, *words, steps=12), tmp_path)
    spec.write_text(text.replace("final: out/final", "final: out"))
    here("render", str(spec), str(tmp_path / "bundle"))
    shutil.rmtree(program)
    (tmp_path / "tokens.txt").unlink()
    place = (tmp_path / "bundle").rename(tmp_path / "elsewhere")
    for _ in range(2):  # again: from its own checkpoint
        words = ["sh", "train.sh"]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "iter 12:" in done.stdout
    assert "iter 10:" not in done.stdout
    kept = [path.name for path in (place / "final").rglob("*") if path.is_file()]
    assert kept == ["model.txt"]  # not the checkpoints beside it


def test_an_end_before_the_last_step_is_not_complete(here: CommandLine, tmp_path: Path) -> None:
    spec = program_spec(write_program(tmp_path / "program")).replace("steps: 40", "steps: 400")
    run = here("launch", spec + "recovery: {on_crash: stop}\n")["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["step"], status["target_step"]) == ("failed", 40, 400)


@pytest.mark.long
def test_a_program_whose_steps_are_not_read_is_taken_by_its_exit_code(
    here: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('done, model saved')\n")
    script = f"{{path: {tmp_path}, command: [python3, train.py]}}"
    spec = f"name: mute\nframework: script\nsteps: 5\nscript: {script}\n"
    run = here("launch", spec)["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["attempt"]) == ("completed", 1)
    here("resume", run, "--set", "steps=null")
    ended = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert (ended["event"], here("status", run)["attempt"]) == ("completed", 2)


@pytest.mark.long
def test_a_program_takes_another_number_of_processes_once_its_checkpoints_are_said_to_fit_it(
    here: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "loop.py").write_text(
        "import pathlib, sys\n"
        "for step in range(12):\n"
        "    print('step', step, 'loss', 4 - step / 10)\n"
        "pathlib.Path(f'ckpt-{sys.argv[1]}.txt').write_text('whole')\n"
    )
    script = {
        "path": str(program),
        "command": ["python3", "loop.py", "{processes}"],
        "resume": ["{checkpoint}"],
        "checkpoints": {"path": "ckpt-*.txt"},
    }
    spec = {"name": "any", "framework": "script", "script": script}
    run = here("launch", json.dumps({**spec, "compute": {"gpus": 0, "processes": 2}}))["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    three = ["--set", "compute.processes=3"]
    refused = here("resume", run, *three, code=1)["error"]
    assert (refused["code"], refused["field"]) == ("INVALID_VALUE", "compute.processes")
    assert "--set script.elastic=true" in refused["fix"]
    here("resume", run, *three, "--set", "script.elastic=true")
    ended = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    folder = Path(here("status", run, "--detail")["folder"])
    assert (folder / "code" / "ckpt-3.txt").exists()


def test_a_spec_that_misses_what_a_program_saves_and_prints_is_a_finding_and_no_failure(
    here: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "loop.py").write_text(
        "import pathlib\n"
        "for step in range(12):\n"
        "    print('~~', step, '^', 4 - step / 10)\n"
        "pathlib.Path('model.pt').write_bytes(b'weights')\n"
    )
    script = {
        "path": str(program),
        "command": ["python3", "loop.py"],
        "checkpoints": {"path": "out/*.pt"},
        "pattern": "it {step} L={loss}",
    }
    spec = {"name": "missed", "framework": "script", "script": script, "compute": {"gpus": 0}}
    run = here("launch", json.dumps(spec))["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    found = {one["code"]: one for one in here("diagnose", run)["findings"]}
    assert here("status", run)["state"] == "completed"
    assert {code: one["severity"] for code, one in found.items()} == {
        "checkpoints_unmatched": "warning",
        "log_not_understood": "warning",
    }
    assert "written since the start: model.pt" in found["checkpoints_unmatched"]["evidence"]
    assert "~~ 0 ^ 4.0" in found["log_not_understood"]["evidence"]
    assert f" metrics {run} --pattern " in " ".join(found["log_not_understood"]["advice"])
    note, taught = here("metrics", run)["notes"]
    assert "no metrics of steps so far" in note and f"diagnose {run}" in note
    assert "`--pattern`" in taught


@pytest.mark.long
def test_a_failed_run_is_compared_with_the_last_of_its_spec_that_completed(
    here: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "program" / "loop.py"
    program.parent.mkdir()
    program.write_text("print('step 1 loss 2.5')\n")
    script = {"path": str(program.parent), "command": ["python3", "loop.py"]}
    given = {"name": "same", "framework": "script", "script": script, "compute": {"gpus": 0}}
    ends = ("--until", "end", "--timeout", str(LONGEST_S))
    good = here("launch", json.dumps(given))["run_id"]
    here("wait", good, *ends)
    program.write_text("raise SystemExit(3)\n")
    changed = {**given, "env": {"MODE": "new"}, "recovery": {"on_crash": "stop"}}
    bad = here("launch", json.dumps(changed))["run_id"]
    here("wait", bad, *ends)
    compared = here("diagnose", bad)["compared"]
    assert compared["run_id"] == good
    assert compared["differs"][0].startswith("code: sha256:")
    assert sorted(compared["differs"][1:]) == [
        "env.MODE: null -> new",
        "recovery.on_crash: resume -> stop",
    ]
    assert "compared" not in here("diagnose", good)
    for advised in (here("status", bad), here("diagnose", bad)):
        assert "if you change them, launch again" in advised["next_step"]
    program.write_text("print('step 1 loss 2.5')\n")
    here("resume", bad)
    here("wait", bad, *ends)
    assert here("status", bad)["state"] == "failed"  # by the files of the launch


def test_a_command_that_the_host_lacks_is_named(here: CommandLine, tmp_path: Path) -> None:
    spec = program_spec(write_program(tmp_path / "program")).replace(
        "'python3'", "'{run_dir}/python'"
    )
    run = here("launch", spec)["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["reason"] == "unusable"
    assert "/python' is not there" in " ".join(here("diagnose", run)["evidence"])

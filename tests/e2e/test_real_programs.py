"""Real programs that are run as they are: nanoGPT, LitGPT, TRL, torchrun, Hugging Face Trainer.

They take minutes, so that only shapes of theirs are among the tests that always run: a checkout of
nanoGPT is named by TRAINMASTER_NANOGPT, and TRAINMASTER_PROGRAMS=1 runs the installed ones.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from support.host.foreign_program import kill_program, saved_at, started
from support.runs.running_run import LONGEST_S, CommandLine
from support.train.preference_data import save_tiny_model

from trainer_runtime.core.frameworks import byte_tokenizer

pytestmark = pytest.mark.slow
_WITH_PROGRAMS = pytest.mark.skipif(
    "TRAINMASTER_PROGRAMS" not in os.environ, reason="takes minutes: TRAINMASTER_PROGRAMS=1"
)


@pytest.mark.skipif("TRAINMASTER_NANOGPT" not in os.environ, reason="needs a checkout of nanoGPT")
def test_nanogpt_itself_is_resumed_from_its_own_checkpoint_over_ssh(
    remote: CommandLine, tmp_path: Path
) -> None:
    """Unchanged, with its data beside it: killed twice, stopped once, its checkpoint torn once."""
    program, here = nanogpt(tmp_path / "nanoGPT"), remote
    run = here("launch", nanogpt_spec(program) + "host: gpu1\n")["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    for attempt in (2, 3):
        saved_at(here, run, attempt - 1)
        kill_program(folder)
        assert started(here, folder, attempt)["resumed_from"] > 0
    saved_at(here, run, 3)
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    before = [one["step"] for one in here("checkpoints", run)["checkpoints"]]
    saved = folder / "code" / "out" / "ckpt.pt"
    saved.write_bytes(saved.read_bytes()[:-3000])
    here("resume", run)
    begun = started(here, folder, 4)
    assert begun["resumed_from"] in before
    assert begun["skipped"]
    here("stop", run)


@_WITH_PROGRAMS
@pytest.mark.parametrize("kind", ["trl", "clm", "litgpt"])
def test_a_framework_is_resumed_from_its_own_checkpoints(
    here: CommandLine, tmp_path: Path, kind: str
) -> None:
    """TRL's command line, a script with Trainer, LitGPT's command line: no step is lost."""
    program = tmp_path / kind
    write, spec, every, last = _FRAMEWORKS[kind]
    write(program)
    run = here("launch", spec(program))["run_id"]
    folder = Path(here("status", run, "--detail")["folder"])
    saved_at(here, run, 1)
    kill_program(folder)
    begun = started(here, folder, 2)["resumed_from"]
    assert begun > 0 and begun % every == 0
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    loss = here("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, last + 1))
    assert here("checkpoints", run)["checkpoints"][-1]["step"] == last
    assert here("fetch", run, "final", str(tmp_path / "fetched"))["files"] > 0


@pytest.mark.skipif("TRAINMASTER_MODDED" not in os.environ, reason="needs modded-nanogpt")
def test_modded_nanogpt_without_a_gpu_says_what_it_lacks(here: CommandLine, tmp_path: Path) -> None:
    program = tmp_path / "modded"
    program.mkdir()
    for path in Path(os.environ["TRAINMASTER_MODDED"]).glob("*.py"):
        (program / path.name).write_bytes(path.read_bytes())
    command = [_beside("torchrun"), "--standalone", "--nproc_per_node={processes}", "train_gpt.py"]
    saves = {"path": "logs/*/state_step*.pt", "step": r"state_step(\d+)"}
    run = here("launch", _spec(program, command, checkpoints=saves))["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "failed"
    codes = {one["code"] for one in here("diagnose", run)["findings"]}
    assert codes & {"triton_missing", "cuda_driver_too_old"}


@_WITH_PROGRAMS
def test_two_ranks_of_torchrun_are_one_program(here: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "train.py").write_text(_RANKS)
    command = [_beside("torchrun"), "--standalone", "--nproc_per_node={processes}", "train.py"]
    spec = f"""\
name: ranks
framework: script
script:
  path: {tmp_path}/ranks
  command: {json.dumps(command)}
  checkpoints: {{path: "ckpt_*.pt"}}
steps: 30
compute: {{gpus: 0, processes: 2}}
"""
    run = here("launch", spec)["run_id"]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert here("checkpoints", run)["resume_from"] == 30


_RANKS = """\
import time
import torch
import torch.distributed as ranks
ranks.init_process_group("gloo")
for step in range(1, 31):
    total = torch.ones(1)
    ranks.all_reduce(total)
    if ranks.get_rank() == 0:
        print(f"step {step}/30 loss {total.item() * 2 - 0.01 * step:.3f}", flush=True)
    time.sleep(0.02)
if ranks.get_rank() == 0:
    torch.save({"step": 30, "model": {"w": total}}, "ckpt_30.pt")
ranks.destroy_process_group()
"""


def _beside(name: str) -> str:
    """A program of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def _spec(program: Path, command: list[str], **script: object) -> str:
    given = {"path": str(program), "command": command, **script}
    document = {
        "name": program.name,
        "framework": "script",
        "script": given,
        "env": {"HF_HUB_OFFLINE": "1"},
        "compute": {"gpus": 0},
    }
    return json.dumps(document)


def _words(**options: object) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _write_sft(program: Path) -> None:
    save_tiny_model(program / "model")
    (program / "data").mkdir()
    rows = [json.dumps({"text": f"{n} plus {n} is {2 * n}. " * 3}) for n in range(200)]
    (program / "data" / "train.jsonl").write_text("\n".join(rows) + "\n")


def _sft(program: Path) -> str:
    given = {"model_name_or_path": "model", "dataset_name": "data", "output_dir": "out"}
    numbers = {"max_steps": 600, "save_steps": 50, "logging_steps": 1, "max_length": 32}
    more = {"per_device_train_batch_size": 2, "report_to": "none"}
    command = [_beside("trl"), "sft", "--use_cpu", *_words(**given, **numbers, **more)]
    return _spec(program, command, **_OF_TRAINER)


def _write_clm(program: Path) -> None:
    save_tiny_model(program / "model")
    script = Path(__file__).parents[1] / "support" / "programs" / "run_clm.py"
    (program / "run_clm.py").write_bytes(script.read_bytes())
    for name, rows in (("train", 800), ("valid", 40)):
        lines = [f"{n} and {n} make {2 * n}, which is even" for n in range(rows)]
        (program / f"{name}.txt").write_text("\n".join(lines))


def _clm(program: Path) -> str:
    numbers = {"max_steps": 400, "save_steps": 50, "logging_steps": 1, "block_size": 32}
    more = {"per_device_train_batch_size": 2, "report_to": "none", "output_dir": "out"}
    command = [sys.executable, "run_clm.py", "--use_cpu", *_words(**numbers, **more)]
    return _spec(program, command, **_OF_TRAINER)


def _write_litgpt(program: Path) -> None:
    from litgpt import GPT, Config
    from litgpt.utils import save_config

    folder = program / "model"
    folder.mkdir(parents=True)
    vocab = {"vocab_size": 300, "padded_vocab_size": 320}
    sizes = Config(name="tiny", block_size=64, n_layer=2, n_head=2, n_embd=32, **vocab)
    torch.save(GPT(sizes).state_dict(), folder / "lit_model.pth")
    save_config(sizes, folder)
    for name, text in byte_tokenizer.files().items():
        (folder / Path(name).name).write_text(text)
    rows = [
        {"instruction": f"{n} plus {n}", "input": "", "output": f"it is {2 * n}"}
        for n in range(400)
    ]
    (program / "data.json").write_text(json.dumps(rows))


def _litgpt(program: Path) -> str:
    data = {"data": "JSON", "data.json_path": "data.json", "data.val_split_fraction": 0.1}
    batch = {"train.micro_batch_size": 4, "train.global_batch_size": 4, "data.num_workers": 0}
    often = {"train.save_interval": 20, "train.log_interval": 1, "eval.interval": 40}
    more = {"train.epochs": 2, "train.max_seq_length": 64, "devices": 1, "out_dir": "out"}
    options = _words(**data, **batch, **often, **more, precision="32-true")
    return _spec(
        program,
        [_beside("litgpt"), "finetune_full", "model", *options],
        resume=["--resume", "{checkpoint}"],
        checkpoints={"path": "out/step-*/lit_model.pth", "step": r"step-(\d+)"},
        final="out/final",
    )


_OF_TRAINER = {
    "resume": ["--resume_from_checkpoint", "{checkpoint}"],
    "checkpoints": {"path": "out/checkpoint-*", "keep_latest": 3},
    "final": "out",
}
_FRAMEWORKS = {
    "trl": (_write_sft, _sft, 50, 600),
    "clm": (_write_clm, _clm, 50, 400),
    "litgpt": (_write_litgpt, _litgpt, 20, 180),
}


def nanogpt(target: Path) -> Path:
    """The checkout's files, with tokens beside them."""
    source = Path(os.environ["TRAINMASTER_NANOGPT"])
    data = target / "data" / "shakespeare_char"
    (target / "config").mkdir(parents=True)
    data.mkdir(parents=True)
    for name in ("train.py", "model.py", "configurator.py", "config/train_shakespeare_char.py"):
        (target / name).write_bytes((source / name).read_bytes())
    for name, tokens in (("train", 100_000), ("val", 20_000)):
        (data / f"{name}.bin").write_bytes(b"".join(bytes((n % 65, 0)) for n in range(tokens)))
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {}, "stoi": {}}))
    return target


def nanogpt_spec(program: Path) -> str:
    sizes = {"block_size": 32, "batch_size": 4, "n_layer": 2, "n_head": 2, "n_embd": 32}
    more = {"device": "cpu", "compile": False, "eval_iters": 1, "log_interval": 1, "out_dir": "out"}
    often = {"max_iters": 100_000, "eval_interval": 50, "always_save_checkpoint": True}
    words = [f"--{name}={value}" for name, value in (sizes | more | often).items()]
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *words]
    return f"""\
name: nano
framework: script
script:
  path: {program}
  command: {json.dumps(command)}
  resume: [--init_from=resume]
  checkpoints: {{path: out/ckpt.pt}}
steps: 100000
compute: {{gpus: 0}}
"""

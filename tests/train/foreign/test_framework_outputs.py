"""What Trainer and LitGPT really leave, recognised, verified and resumed from."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.train.output_folders import BLOCK, LITGPT_HYPERPARAMETERS, VOCABULARY
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer_runtime.core.files.manifest import read, verify
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.train.foreign import take_over
from trainer_runtime.train.foreign.inspect import inspect_output
from trainer_runtime.train.foreign.records import stamp_of

TEXT = b"the loss falls slowly while every step reads another line. " * 3
STEPS = 8


class Rows(Dataset[Any]):
    """Windows of the text, as both frameworks take them."""

    def __init__(self, length: int, *, named: bool) -> None:
        self._length, self._named = length, named

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        tokens = torch.tensor(list(TEXT[index % 50 : index % 50 + self._length]))
        return {"input_ids": tokens, "labels": tokens} if self._named else tokens


class Stateful(DataLoader[Tensor]):
    """A loader that reports its position, as LitGPT's streaming ones do."""

    def state_dict(self) -> dict[str, int]:
        return {"read": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        return


def trainer(folder: Path, steps: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": BLOCK}
    ends = {"bos_token_id": 256, "eos_token_id": 256}
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=4,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=4,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    return Trainer(
        GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, **ends)),
        arguments,
        train_dataset=Rows(BLOCK, named=True),
        eval_dataset=torch.utils.data.Subset(Rows(BLOCK, named=True), range(4)),
    )


@pytest.fixture(scope="module")
def of_trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer") / "out"
    trainer(folder, STEPS).train()
    return folder


@pytest.fixture(scope="module")
def of_litgpt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("litgpt") / "out"
    with pytest.MonkeyPatch.context() as patch:
        # Its variable would be too late where something has imported the compiler before.
        patch.setattr("torch._dynamo.config.disable", True)
        pretrain(folder, patch)
        yield folder


def pretrain(folder: Path, patch: pytest.MonkeyPatch) -> None:
    from litgpt import pretrain as command
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.config import Config
    from litgpt.data import DataModule

    class Data(DataModule):
        def connect(
            self, tokenizer: object = None, batch_size: int = 1, max_seq_length: int = -1
        ) -> None:
            self.batch_size = batch_size

        def train_dataloader(self) -> Stateful:
            return Stateful(Rows(BLOCK + 1, named=False), batch_size=self.batch_size, shuffle=True)

        def val_dataloader(self) -> Stateful:
            return Stateful(Rows(BLOCK + 1, named=False), batch_size=self.batch_size)

    # It parses the caller's command line, which here is pytest's.
    patch.setattr(command, "save_hyperparameters", lambda *_: None)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": BLOCK}
    vocabulary = {"vocab_size": VOCABULARY, "padded_vocab_size": VOCABULARY}
    command.setup(
        model_name="tiny",
        model_config=Config(name="tiny", bias=False, **sizes, **vocabulary),
        out_dir=folder,
        precision="32-true",
        data=Data(),
        train=TrainArgs(
            save_interval=4,
            log_interval=1,
            global_batch_size=4,
            micro_batch_size=2,
            max_tokens=STEPS * 4 * BLOCK,
            max_seq_length=BLOCK,
            max_norm=1.0,
            lr_warmup_steps=2,
        ),
        eval=EvalArgs(interval=4, max_iters=1, initial_validation=False),
        optimizer={"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.003}},
        logger_name="csv",
        devices=1,
        seed=1,
    )


@pytest.fixture
def out(of_trainer: Path, tmp_path: Path) -> Path:
    """A copy of Trainer's folder that may be spoilt."""
    return Path(shutil.copytree(of_trainer, tmp_path / "out"))


def inspected(folder: Path) -> dict[str, Any]:
    output: dict[str, Any] = inspect_output(str(folder))["output"]
    return output


def problem(folder: Path) -> str:
    """That of the newest checkpoint; the one before stays whole."""
    first, second = inspected(folder)["checkpoints"]
    assert (first["step"], first["problem"]) == (4, None)
    return str(second["problem"])


def test_trainers_checkpoints_give_their_steps_and_settings(of_trainer: Path) -> None:
    output = inspected(of_trainer)
    found = [(one["path"], one["step"], one["problem"]) for one in output["checkpoints"]]
    assert found == [("checkpoint-4", 4, None), ("checkpoint-8", 8, None)]
    assert output["framework"] == "hf"
    assert output["checkpoints"][1]["metrics"].keys() >= {"loss", "val_loss", "lr", "grad_norm"}
    assert output["shape"]["model.d_model"] == 32
    assert output["described"] == {
        "model.path": str(of_trainer / "checkpoint-8"),
        "data.seq_len": BLOCK,
        "steps": STEPS,
        "batch.micro_batch": 4,
        "eval.every_steps": 4,
        "optimizer.lr": 0.003,
        "optimizer.weight_decay": 0.0,
        "optimizer.betas": [0.9, 0.999],
        "schedule.kind": "linear",
        "schedule.warmup_steps": 0,
        "schedule.min_lr_ratio": 0.0,
    }
    assert [one["rate"] for one in output["checkpoints"]] == [pytest.approx(0.0015), 0.0]
    assert list(output["open"]) == ["data.tokenizer"]


@pytest.mark.parametrize(
    "name",
    ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors"],
)
def test_a_checkpoint_that_lacks_a_file_is_refused(out: Path, name: str) -> None:
    (out / "checkpoint-8" / name).unlink()
    reason = problem(out)
    assert name in reason
    assert inspected(out)["described"]["model.path"].endswith("checkpoint-4")


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors"]
)
def test_a_torn_file_of_trainers_is_refused(out: Path, name: str) -> None:
    path = out / "checkpoint-8" / name
    os.truncate(path, path.stat().st_size // 2)
    assert name in problem(out)


def test_shards_that_an_index_lists_have_to_be_there(out: Path) -> None:
    place = out / "checkpoint-8"
    (place / "model.safetensors").rename(place / "model-00001-of-00002.safetensors")
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = place / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    assert "model-00002-of-00002.safetensors can't be read" in problem(out)
    index.write_text(json.dumps({"weight_map": {"a": "../../secret"}}))
    assert "lists no files of its folder" in problem(out)
    del files["b"]
    index.write_text(json.dumps({"weight_map": files}))
    assert problem(out) == "None"


def test_of_safetensors_a_damaged_header_is_seen_and_a_changed_weight_is_not(out: Path) -> None:
    """They keep no digest: one finite weight can't be distinguished from another."""
    path = out / "checkpoint-8" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert problem(out) == "None"
    data[20] ^= 1
    path.write_bytes(data)
    assert "model.safetensors" in problem(out)


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_pickles_that_would_run_code_are_refused_or_never_read(out: Path, tmp_path: Path) -> None:
    marker, place = tmp_path / "it-ran", out / "checkpoint-8"
    torch.save(Evil(marker), place / "training_args.bin")
    assert problem(out) == "None"
    torch.save(Evil(marker), place / "rng_state.pth")
    assert "names posix.system" in problem(out)
    assert not marker.exists()


def test_state_that_is_sharded_over_ranks_is_refused(out: Path) -> None:
    (out / "checkpoint-8" / "global_step8").mkdir()
    assert "sharded over ranks" in problem(out)


def test_trl_is_recognized_by_what_it_logs(out: Path) -> None:
    path = out / "checkpoint-8" / "trainer_state.json"
    state = json.loads(path.read_bytes())
    state["log_history"][0]["rewards/chosen"] = 0.1
    path.write_text(json.dumps(state))
    output = inspected(out)
    assert (output["framework"], output["described"]["method"]) == ("trl", "dpo")


def test_an_adapter_gives_its_rank_and_the_model_that_it_changes(out: Path) -> None:
    place = out / "checkpoint-8"
    (place / "model.safetensors").rename(place / "adapter_model.safetensors")
    config = {"base_model_name_or_path": "somebody/base", "r": 4, "lora_alpha": 8}
    (place / "adapter_config.json").write_text(json.dumps(config))
    described = inspected(out)["described"]
    assert "model.path" not in described
    adapter = {name: described[f"adapter.{name}"] for name in ("kind", "r", "alpha")}
    assert (described["model.hub"], adapter) == (
        "somebody/base",
        {"kind": "lora", "r": 4, "alpha": 8},
    )


def taken(folder: Path, place: Path, framework: str) -> Path:
    """Takes the checkpoint of the last step over into a run's folder; its place there."""
    adopted = {"folder": str(place.parent), "path": place.name, "step": STEPS}
    document = {
        "config_version": 1,
        "framework": framework,
        "data": {
            "sources": [{"name": "a"}],
            "tokenizer": "byte",
            "seq_len": BLOCK,
            "fingerprint": "0",
            "cache_dir": "cache",
        },
        "batch": {"tokens": 4 * BLOCK, "micro_batch": 4, "accumulation": 1},
        "optimizer": {"lr": 0.001},
        "schedule": {},
        "checkpoint": {"every": 10},
        "steps": 50,
        "adopt": {**adopted, "stamp": stamp_of(place)},
    }
    config = folder / "attempts/1/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(document))
    assert take_over.main(str(config)) == 0
    found = folder / f"checkpoints/step-{STEPS:08d}"
    assert verify(found) == []
    assert read(found).tags == ("adopted",)
    assert not list((folder / "checkpoints").glob(".*"))
    return found


def history(folder: Path) -> dict[int, dict[str, Any]]:
    lines, _ = complete_lines((folder / "attempts/1/events.jsonl").read_bytes())
    events = [decode(line).document for line in lines]
    return {event["step"]: event["values"] for event in events if event["kind"] == "history"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.engine
def test_trainer_continues_from_the_copy_where_the_original_stood(
    of_trainer: Path, run: Path
) -> None:
    place = of_trainer / "checkpoint-8"
    before = stamp_of(place)
    copy = taken(run, place, "hf")
    assert not (copy / "training_args.bin").exists()
    values = history(run)
    assert sorted(values) == list(range(1, STEPS + 1))
    resumed = trainer(run / "more", STEPS + 1)
    resumed.train(resume_from_checkpoint=str(copy))
    losses = [entry["loss"] for entry in resumed.state.log_history if "loss" in entry]
    assert len(losses) == STEPS + 1
    assert losses[-1] < (losses[0] + losses[STEPS - 1]) / 2
    assert stamp_of(place) == before


@pytest.mark.engine
def test_litgpts_checkpoints_are_verified_and_copied_without_its_loader(
    of_litgpt: Path, run: Path
) -> None:
    output = inspected(of_litgpt)
    assert output["framework"] == "litgpt"
    found = {one["path"]: (one["step"], one["problem"]) for one in output["checkpoints"]}
    assert found == {
        "final": (STEPS, None),
        "step-00000004": (4, None),
        "step-00000008": (STEPS, None),
    }
    assert output["shape"]["model.n_layer"] == 1
    place = of_litgpt / "step-00000008"
    copy = taken(run, place, "litgpt")
    values = history(run)
    assert sorted(values) == list(range(1, STEPS + 1))
    assert "val_loss" in values[4]
    original = torch.load(place / "lit_model.pth", weights_only=True)
    kept = torch.load(copy / "lit_model.pth", weights_only=True)
    assert kept.keys() == original.keys() - {"train_dataloader"}
    assert all(kept["model"][name].equal(value) for name, value in original["model"].items())
    assert json.loads((copy / "rank-0.json").read_bytes())["position"] == [STEPS * 4]
    assert (copy / "model_config.yaml").is_file()


@pytest.mark.engine
def test_what_litgpt_was_asked_for_is_read_beside_its_checkpoint(
    of_litgpt: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(of_litgpt / "step-00000008", tmp_path / "step-00000008"))
    before = inspected(tmp_path)["described"]
    (out / "hyperparameters.yaml").write_text(LITGPT_HYPERPARAMETERS)
    found = inspected(tmp_path)["described"]
    assert {name: found[name] for name in found.keys() - before.keys()} == {
        "data.seq_len": BLOCK,
        "batch.tokens": 8 * BLOCK,
        "batch.micro_batch": 2,
        "steps": 5120 // (8 * BLOCK),
        "schedule.kind": "cosine",
        "schedule.warmup_steps": 5,
        "schedule.min_lr_ratio": 0.1,
        "optimizer.lr": 0.003,
        "optimizer.grad_clip": 1.0,
        "eval.every_steps": 4,
        "eval.batches": 3,
        "precision": "bf16",
        "seed": 7,
    }


@pytest.mark.engine
def test_a_loader_that_litgpt_pickled_whole_is_not_read(of_litgpt: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(of_litgpt / "step-00000008", tmp_path / "step-00000008"))
    document = torch.load(out / "lit_model.pth", weights_only=True)
    torch.save({**document, "train_dataloader": DataLoader([1])}, out / "lit_model.pth")
    reason = inspect_output(str(tmp_path))["output"]["checkpoints"][0]["problem"]
    assert "names torch.utils.data.dataloader.DataLoader" in reason
    torch.save({"model": document["model"]}, out / "lit_model.pth")
    reason = inspect_output(str(tmp_path))["output"]["checkpoints"][0]["problem"]
    assert "weights alone" in reason

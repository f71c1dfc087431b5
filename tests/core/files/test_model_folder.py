"""What folders say of the model and of the tokenizer in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.train.model_folders import (
    write_model,
    write_safetensors,
    write_sentencepiece,
    write_tokenizer,
)

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.model_folder import ModelFolder, read_model_folder
from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder, read_tokenizer_folder


def test_parameters_are_counted_from_the_headers_alone(tmp_path: Path) -> None:
    found = read_model_folder(str(write_model(tmp_path / "model")))
    assert (found.problem, found.kind, found.config["model_type"]) == (None, "hf", "llama")
    assert found.parameters == 320 * 32 + 32 * 64
    assert found.weight_bytes == (tmp_path / "model/model.safetensors").stat().st_size
    assert ModelFolder.of(Fields(json.loads(json.dumps(found.to_dict())), "folder")) == found


def test_shards_are_those_that_the_index_names(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    for number in (1, 2):
        write_safetensors(folder / f"model-0000{number}-of-00002.safetensors", {"w": (number, 8)})
    index = {"weight_map": {f"w{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model_folder(str(folder)).parameters == 24
    (folder / "model-00002-of-00002.safetensors").unlink()
    found = read_model_folder(str(folder))
    assert found.code == "MODEL_DAMAGED" and "00002-of-00002" in str(found.problem)


def test_matrices_are_listed_by_the_last_part_of_their_names(tmp_path: Path) -> None:
    shapes = {
        "model.embed_tokens.weight": (320, 8),
        "model.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.layers.0.self_attn.q_proj.bias": (8,),
        "model.layers.1.self_attn.q_proj.weight": (8, 8),
        "model.norm.weight": (8,),
    }
    found = read_model_folder(str(write_model(tmp_path / "model", shapes=shapes)))
    assert found.matrices == ("embed_tokens", "q_proj")
    assert ModelFolder.of(Fields(json.loads(json.dumps(found.to_dict())), "folder")) == found
    packed = write_model(tmp_path / "packed", shapes=shapes, quantization_config={"bits": 4})
    assert read_model_folder(str(packed)).matrices == ()


def test_pickled_weights_are_counted_without_unpickling_them(tmp_path: Path) -> None:
    import torch

    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    state = {
        "a": torch.zeros(3, 5, dtype=torch.bfloat16),
        "b": torch.zeros(7, dtype=torch.bfloat16),
    }
    torch.save(state, folder / "pytorch_model.bin")
    assert read_model_folder(str(folder)).parameters == 22
    (folder / "lit_model.pth").write_bytes((folder / "pytorch_model.bin").read_bytes())
    (folder / "model_config.yaml").write_text("name: tiny\nn_layer: 2\nn_embd: 32\nbias: false\n")
    found = read_model_folder(str(folder))
    assert (found.kind, found.parameters) == ("litgpt", 22)
    assert found.config == {"name": "tiny", "n_layer": 2, "n_embd": 32, "bias": False}


def test_a_trainings_checkpoint_counts_its_model_alone(tmp_path: Path) -> None:
    import torch

    parameters = [torch.nn.Parameter(torch.ones(3, 5)), torch.nn.Parameter(torch.ones(7).half())]
    optimizer = torch.optim.AdamW(parameters)
    sum(one.float().sum() for one in parameters).backward()  # type: ignore[union-attr]
    optimizer.step()
    embedding, vector = parameters
    state = {"embedding": embedding, "head": embedding.detach().t(), "vector": vector}
    (tmp_path / "model_config.yaml").write_text("name: tiny\n")
    for order in (("model", "optimizer"), ("optimizer", "model")):
        parts = {"model": state, "optimizer": optimizer.state_dict()}
        saved = {**{name: parts[name] for name in order}, "iter_num": 3}
        torch.save(saved, tmp_path / "lit_model.pth")
        assert read_model_folder(str(tmp_path)).parameters == 22


@pytest.mark.parametrize(
    ("removed", "code", "problem"),
    [
        ("config.json", "MODEL_UNUSABLE", "no config.json"),
        ("model.safetensors", "MODEL_UNUSABLE", "holds no weights"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, removed: str, code: str, problem: str) -> None:
    folder = write_model(tmp_path / "model")
    (folder / removed).unlink()
    found = read_model_folder(str(folder))
    assert found.code == code and problem in str(found.problem)


def test_weights_that_are_cut_off_are_damaged(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "model") / "model.safetensors"
    content = weights.read_bytes()
    for kept in (4, 40, len(content) - 1):
        weights.write_bytes(content[:kept])
        assert read_model_folder(str(weights.parent)).code == "MODEL_DAMAGED", kept


def test_an_adapter_alone_names_its_base(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    write_safetensors(tmp_path / "adapter_model.safetensors", {"a": (2, 2)})
    found = read_model_folder(str(tmp_path))
    assert found.code == "MODEL_UNUSABLE" and "some/base" in str(found.problem)


def test_a_tokenizer_gives_its_vocabulary_and_its_end_of_text(tmp_path: Path) -> None:
    plain = read_tokenizer_folder(str(write_tokenizer(tmp_path / "a")))
    assert (plain.problem, plain.vocab_size, plain.end_of_text) == (None, 257, 256)
    more = read_tokenizer_folder(str(write_tokenizer(tmp_path / "b", ["<x>", "<y>"])))
    assert more.vocab_size == 259 and more.digest != plain.digest
    assert TokenizerFolder.of(Fields(more.to_dict(), "folder")) == more


def test_pieces_of_sentencepiece_are_counted(tmp_path: Path) -> None:
    write_sentencepiece(tmp_path)
    found = read_tokenizer_folder(str(tmp_path))
    assert (found.vocab_size, found.end_of_text) == (4, 2)
    assert found.packages == ("sentencepiece", "protobuf")
    assert TokenizerFolder.of(Fields(found.to_dict(), "folder")) == found


def test_a_vocabulary_of_wordpiece_is_counted_and_its_rules_are_in_the_digest(
    tmp_path: Path,
) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[SEP]\nword\n##s\n")
    problem = str(read_tokenizer_folder(str(tmp_path)).problem)
    assert "tokenizer_class of BERT (BertTokenizer), and it has None" in problem
    digests = set()
    for lower in ("true", "false"):
        settings = f'{{"tokenizer_class": "BertTokenizer", "do_lower_case": {lower}}}'
        (tmp_path / "tokenizer_config.json").write_text(settings)
        found = read_tokenizer_folder(str(tmp_path))
        assert (found.problem, found.vocab_size, found.end_of_text) == (None, 5, 2)
        digests.add(found.digest)
    assert len(digests) == 2
    (tmp_path / "vocab.txt").write_text("<unk>\nM\n")
    assert "vocab.txt can't be read: it has no [UNK]" in str(
        read_tokenizer_folder(str(tmp_path)).problem
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "neither tokenizer.json"),
        ("{", "can't be read"),
        ('{"model": {"vocab": {}}}', "no t"),
    ],
)
def test_an_invalid_tokenizer_is_reported(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    assert problem in str(read_tokenizer_folder(str(tmp_path)).problem)

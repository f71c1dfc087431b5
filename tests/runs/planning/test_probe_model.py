"""Models, tokenizers and rows that a spec names: found when planning, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.plan.planned_spec import planned, refused
from support.train.hub_server import REVISION, Hub, serving
from support.train.model_folders import write_model, write_sentencepiece, write_tokenizer

from trainmaster.plan.planned import plan_again
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def spec_of(corpus: Path, model: dict[str, Any], **changes: Any) -> str:
    data = {"sources": [{"name": "main", "path": str(corpus)}], "seq_len": 32}
    spec = {
        "name": "small",
        "framework": "hf",
        "model": model,
        "data": {**data, **changes.pop("data", {})},
        "batch": {"tokens": 256},
        "steps": 4,
        "compute": {"gpus": 0},
        "host": "debug",
        **changes,
    }
    return json.dumps(spec)


@pytest.mark.parametrize(("tokenizer", "size"), [("auto", 65), ("none", 65), ("auto", None)])
def test_ready_tokens_need_no_tokenizer_where_the_vocabulary_is_given(
    workspace: Workspace, tmp_path: Path, tokenizer: str, size: int | None
) -> None:
    (tmp_path / "train.bin").write_bytes(bytes(range(60)) * 100)
    sizes = {"n_layer": 1, "n_head": 2, "d_model": 32, "vocab_size": size}
    data = {"sources": [{"path": str(tmp_path / "train.bin"), "format": "tokens"}]}
    spec = spec_of(tmp_path, sizes, framework="nanogpt", data={**data, "tokenizer": tokenizer})
    found = planned(workspace, spec).config["data"]
    without = ("none", "none-65", 65)
    expected = without if size else ("byte", None, None)
    names = ("tokenizer", "tokenizer_digest", "vocab_size")
    assert tuple(found.get(name) for name in names) == expected


def test_a_folders_sizes_and_parameters_are_what_its_files_say(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model")
    made = planned(workspace, spec_of(corpus, {"path": str(folder)}))
    assert made.plan.estimates.parameters == 320 * 32 + 32 * 64
    model, data = made.config["model"], made.config["data"]
    assert (model["n_layer"], model["d_model"], model["vocab_size"]) == (2, 32, 320)
    assert (model["path"], data["tokenizer"]) == (str(folder), str(folder))
    assert "inputs" not in made.config  # it lies on this machine, which trains
    again = plan_again(made.spec_text, ["steps=8"], json.loads(json.dumps(made.to_dict())))
    assert again.config == {**made.config, "steps": 8, "schedule": again.config["schedule"]}


def test_weights_that_bring_no_tokenizer_may_have_been_trained_on_bytes(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    model = {"path": str(write_model(tmp_path / "model", tokenizer=False))}
    made = planned(workspace, spec_of(corpus, model, data={"tokenizer": "byte"}))
    assert made.config["data"]["tokenizer"] == "byte"


@pytest.mark.parametrize(
    ("harm", "code", "field"),
    [
        ("gone", "MODEL_NOT_FOUND", "model.path"),
        ("cut off", "MODEL_DAMAGED", "model.path"),
        ("no tokenizer", "TOKENIZER_UNUSABLE", "data.tokenizer"),
        ("byte", "INVALID_VALUE", "data.tokenizer"),
        ("few", "VOCABULARY_TOO_SMALL", "data.tokenizer"),
        ("large", "VOCABULARY_TOO_SMALL", "data.tokenizer"),
    ],
)
def test_what_cant_be_trained_is_refused_with_its_field(
    workspace: Workspace, corpus: Path, tmp_path: Path, harm: str, code: str, field: str
) -> None:
    folder = write_model(tmp_path / "model", tokenizer=harm != "no tokenizer")
    data = {}
    if harm == "gone":
        folder = tmp_path / "nowhere"
    elif harm == "cut off":
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    elif harm == "byte":
        data = {"tokenizer": "byte"}
    elif harm == "few":
        folder = write_model(tmp_path / "few", tokenizer=False, vocab_size=256)
        data = {"tokenizer": "byte"}
    elif harm == "large":
        words = [f"<{number}>" for number in range(64)]
        data = {"tokenizer": str(write_tokenizer(tmp_path / "large", words))}
    error = refused(workspace, spec_of(corpus, {"path": str(folder)}, data=data))
    assert (error.code, error.field) == (code, field) and error.fix


def test_a_hubs_model_is_planned_from_what_it_says_and_fetched_by_the_box(
    workspace: Workspace, corpus: Path, tmp_path: Path, hub: Hub
) -> None:
    hub.models["some/model"] = write_model(tmp_path / "model", torch_dtype="bfloat16")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"pickled, and not needed")
    made = planned(workspace, spec_of(corpus, {"hub": "some/model"}))
    folder = made.config["model"]["path"]
    assert folder.endswith(f"/models/some-model-{REVISION[:12]}")
    assert made.config["model"]["revision"] == REVISION
    assert made.config["data"]["tokenizer"] == folder
    (item,) = made.config["inputs"]
    assert (item["what"], item["hub"], item["from"]) == ("model", "some/model", None)
    names = {name for name, _ in item["files"]}
    assert names == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert not any("safetensors" in asked for asked in hub.asked)


def test_a_gated_model_takes_the_token_that_the_spec_lists(
    workspace: Workspace,
    corpus: Path,
    tmp_path: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.models["some/gated"] = write_model(tmp_path / "model")
    hub.gated.add("some/gated")
    monkeypatch.setenv("HF_TOKEN", hub.token)
    error = refused(workspace, spec_of(corpus, {"hub": "some/gated"}))
    assert (error.code, error.field) == ("HUB_GATED", "model.hub") and "HF_TOKEN" in error.fix
    workspace.home.root.mkdir(parents=True, exist_ok=True)
    (workspace.home.root / "settings.yaml").write_text("secrets: {allow: [HF_TOKEN]}\n")
    spec = spec_of(corpus, {"hub": "some/gated"}, secrets=["HF_TOKEN"])
    assert planned(workspace, spec).config["model"]["n_layer"] == 2
    elsewhere = json.loads(spec) | {
        "env": {"HF_ENDPOINT": hub.endpoint.replace("127.0.0.1", "localhost")}
    }
    assert refused(workspace, json.dumps(elsewhere)).code == "HUB_GATED"


def test_a_name_that_the_hub_has_not_and_a_hub_that_is_away_are_distinguished(
    workspace: Workspace, corpus: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(workspace, spec_of(corpus, {"hub": "no/such"}))
    assert (error.code, error.field) == ("HUB_NOT_FOUND", "model.hub")
    assert refused(workspace, spec_of(corpus, {"hub": "../etc"})).code == "HUB_NOT_FOUND"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    error = refused(workspace, spec_of(corpus, {"hub": "no/such"}))
    assert (error.code, error.retryable) == ("HUB_UNREACHABLE", True)
    assert "model.path" in error.fix and "HF_HUB_OFFLINE" in error.fix


def test_offline_the_boxs_own_cache_of_the_hub_counts(
    workspace: Workspace, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    kept = tmp_path / "hf/hub/models--some--model"
    folder = write_model(kept / "snapshots" / REVISION)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(REVISION)
    offline = {"env": {"HF_HUB_OFFLINE": "1"}}
    made = planned(workspace, spec_of(corpus, {"hub": "some/model"}, **offline))
    assert made.config["model"]["path"] == str(folder) and "inputs" not in made.config
    error = refused(workspace, spec_of(corpus, {"hub": "other/model"}, **offline))
    assert error.code == "HUB_NOT_FOUND" and "hf download" in error.fix


def test_another_tokenizer_is_fetched_for_a_model_trained_from_scratch(
    workspace: Workspace, corpus: Path, tmp_path: Path, hub: Hub
) -> None:
    hub.models["some/tokenizer"] = write_tokenizer(tmp_path / "tokenizer", ["<x>"])
    sizes = {"n_layer": 2, "n_head": 2, "d_model": 32}
    tokenizer = {"tokenizer": "some/tokenizer"}
    made = planned(workspace, spec_of(corpus, {**sizes, "vocab_size": 320}, data=tokenizer))
    (item,) = made.config["inputs"]
    assert (item["what"], item["hub"]) == ("tokenizer", "some/tokenizer")
    assert made.config["data"]["tokenizer"] == item["folder"]
    assert made.corpus.estimated and made.corpus.tokens < 12_000 / 3
    auto = planned(workspace, spec_of(corpus, sizes, data=tokenizer))
    assert auto.config["model"]["vocab_size"] == 320  # 258, padded
    error = refused(workspace, spec_of(corpus, {**sizes, "vocab_size": 257}, data=tokenizer))
    assert (error.code, error.field) == ("VOCABULARY_TOO_SMALL", "model.vocab_size")


def rows(folder: Path, *lines: object) -> Path:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / "rows.jsonl").write_text(text)
    return folder / "rows.jsonl"


@pytest.mark.parametrize(
    ("method", "line", "message"),
    [
        ("dpo", {"chosen": "a"}, "line 2: it has no `rejected`"),
        ("dpo", {"chosen": "a", "rejected": 3}, "`rejected` is 3, not a text"),
        ("kto", {"prompt": "a", "completion": "b", "label": "yes"}, "not true or false"),
        ("sft", {"body": "a"}, "it has no `text`"),
        ("sft", {"messages": ["hello"]}, "not a list of messages"),
        ("sft", '["a"]', "it holds a JSON array"),
        ("sft", "{", "it is not a JSON object"),
    ],
)
def test_rows_that_a_method_cant_learn_from_are_named_by_line(
    workspace: Workspace, tmp_path: Path, method: str, line: object, message: str
) -> None:
    good = {
        "dpo": {"prompt": "p", "chosen": [{"role": "user", "content": "x"}], "rejected": "b"},
        "kto": {"prompt": "p", "completion": "c", "label": True},
        "sft": {"prompt": "p", "completion": "c"},
    }
    path = rows(tmp_path, good[method], line)
    data = {"sources": [{"name": "main", "path": str(path), "format": "jsonl"}]}
    model = {"path": str(write_model(tmp_path / "model"))}
    spec = spec_of(path, model, framework="trl", method=method, data=data)
    error = refused(workspace, spec)
    assert (error.code, error.field) == ("DATA_MALFORMED", "data.sources[0].path")
    assert message in error.message


_SAID = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]


@pytest.mark.parametrize(
    ("framework", "method", "row"),
    [
        ("trl", "sft", {"messages": _SAID}),
        ("trl", "sft", {"prompt": _SAID[:1], "completion": _SAID[1:]}),
        ("trl", "dpo", {"chosen": _SAID, "rejected": _SAID}),
        ("trl", "reward", {"chosen": _SAID, "rejected": _SAID}),
        ("trl", "kto", {"prompt": _SAID[:1], "completion": _SAID[1:], "label": True}),
        ("litgpt", "sft", {"messages": _SAID}),
        ("trl", "sft", {"prompt": "p", "completion": "c"}),
    ],
)
def test_conversations_take_a_tokenizer_with_a_chat_template(
    workspace: Workspace, tmp_path: Path, framework: str, method: str, row: dict[str, Any]
) -> None:
    path = rows(tmp_path, row)
    folder = write_model(tmp_path / "model")
    data = {"sources": [{"name": "main", "path": str(path), "format": "jsonl"}]}
    spec = spec_of(path, {"path": str(folder)}, framework=framework, method=method, data=data)
    if framework == "trl" and not isinstance(row.get("prompt"), str):
        error = refused(workspace, spec)
        assert (error.code, error.field) == ("TOKENIZER_UNUSABLE", "data.tokenizer")
        assert "`data.sources[0].path` are conversations" in error.message
        assert "chat_template.jinja" in error.fix
        (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert planned(workspace, spec).config["method"] == method


def test_litgpt_fine_tunes_on_instructions_but_not_on_plain_texts(
    workspace: Workspace, tmp_path: Path
) -> None:
    data = {"sources": [{"name": "main", "path": str(tmp_path / "rows.jsonl"), "format": "jsonl"}]}
    model = {"path": str(write_model(tmp_path / "model"))}
    given = {"framework": "litgpt", "method": "sft", "data": data}
    path = rows(tmp_path, {"instruction": "Add.", "input": None, "output": "3"})
    assert planned(workspace, spec_of(path, model, **given)).config["method"] == "sft"
    error = refused(workspace, spec_of(rows(tmp_path, {"text": "1+2=3"}), model, **given))
    assert (error.code, error.field) == ("DATA_MALFORMED", "data.sources[0].path")
    assert "litgpt sft takes `instruction` and `output`" in error.message


def test_a_reward_file_travels_and_must_define_what_rates(
    workspace: Workspace, tmp_path: Path
) -> None:
    data = {
        "sources": [
            {"name": "main", "path": str(rows(tmp_path, {"prompt": "p"})), "format": "jsonl"}
        ]
    }
    model = {"path": str(write_model(tmp_path / "model"))}
    reward = tmp_path / "own.py"
    arguments = {"reward_file": str(reward)}
    spec = spec_of(
        tmp_path, model, framework="trl", method="grpo", data=data, method_args=arguments
    )
    for text in (
        "def reward(:\n",
        "def rate(completions, **kwargs): ...\n",
        "def reward(texts): ...\n",
    ):
        reward.write_text(text)
        error = refused(workspace, spec)
        assert (error.code, error.field) == ("INVALID_VALUE", "method_args.reward_file"), text
    reward.write_text(
        "def reward_length(completions, **kwargs):\n    return [1.0 for _ in completions]\n"
    )
    assert planned(workspace, spec).attached == {"reward.py": reward.read_text()}


def test_a_bert_folder_is_refused_and_not_trained_as_a_causal_model(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    bert = write_model(tmp_path / "bert", model_type="bert", architectures=["BertForMaskedLM"])
    error = refused(workspace, spec_of(corpus, {"path": str(bert)}))
    assert error.code == "MODEL_UNUSABLE"
    assert "it is BertForMaskedLM, not a causal language model" in str(error)


def test_a_model_of_the_hub_is_refused_by_its_architecture(
    workspace: Workspace, corpus: Path, tmp_path: Path, hub: Hub
) -> None:
    flags = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
    hub.models["acme/t5"] = write_model(tmp_path / "t5", model_type="t5", **flags)
    error = refused(workspace, spec_of(corpus, {"hub": "acme/t5"}))
    assert "an encoder with a decoder, which pretrain can't train" in str(error)


def test_an_objective_takes_a_hub_model_whose_tokenizer_has_its_tokens(
    workspace: Workspace, corpus: Path, tmp_path: Path, hub: Hub
) -> None:
    t5 = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "num_layers": 2,
        "num_heads": 2,
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 64,
    }
    hub.models["acme/t5"] = write_model(tmp_path / "t5", **t5)
    spec = spec_of(corpus, {"hub": "acme/t5"}, objective="denoising")
    error = refused(workspace, spec)
    assert (error.code, error.field) == ("TOKENIZER_UNUSABLE", "data.tokenizer")
    assert "'acme/t5' has 0 sentinels, of 2" in str(error)
    write_tokenizer(tmp_path / "t5", ("<extra_id_0>", "<extra_id_1>"))
    made = planned(workspace, spec)
    assert made.config["objective"] == "denoising"
    (item,) = made.config["inputs"]
    assert (item["what"], item["hub"]) == ("model", "acme/t5")


def test_sentencepiece_brings_the_packages_that_read_it(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model", tokenizer=False)
    write_sentencepiece(folder)
    made = planned(workspace, spec_of(corpus, {"path": str(folder)}))
    required = " ".join(made.plan.requirements)
    assert "sentencepiece>=" in required and "protobuf>=" in required
    write_tokenizer(folder)  # tokenizer.json is read without them
    made = planned(workspace, spec_of(corpus, {"path": str(folder)}))
    assert "sentencepiece" not in " ".join(made.plan.requirements)

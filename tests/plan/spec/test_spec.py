from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.plan.whole_spec import WHOLE_SPEC

from trainmaster.errors.errors import SpecError
from trainmaster.plan.spec import (
    load_spec,
)

_DOCS = Path(__file__).resolve().parents[3] / "docs"


def refusal(text: str, *sets: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(text, sets)
    return caught.value


def test_the_whole_spec_is_accepted_and_says_what_the_defaults_say(small_spec: str) -> None:
    whole = load_spec(WHOLE_SPEC)
    shown = ["name=stdlib-gpt", "labels.experiment=demo", "data.tokenizer=byte"]
    short = load_spec(small_spec, shown)
    assert whole == short


def test_a_path_is_read_and_relative_data_starts_at_its_folder(
    tmp_path: Path, small_spec: str
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(small_spec)
    assert load_spec(str(file)).data.sources[0].path == str(tmp_path / "corpus")
    assert load_spec(file) == load_spec(str(file))


def test_data_of_a_spec_given_as_text_starts_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_spec: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_spec(small_spec).data.sources[0].path == str(tmp_path / "corpus")


def test_a_spec_as_json_on_one_line_is_text() -> None:
    text = json.dumps(load_spec(WHOLE_SPEC).model_dump(), separators=(",", ":"))
    assert load_spec(text) == load_spec(WHOLE_SPEC)


def test_a_home_folder_is_filled_in_and_one_of_nobody_is_a_plain_name(small_spec: str) -> None:
    sources = "data.sources=[{path: ~/texts}, {path: ~nobody-at-all/texts}]"
    paths = [source.path for source in load_spec(small_spec, [sources]).data.sources]
    assert paths == [str(Path.home() / "texts"), str(Path.cwd() / "~nobody-at-all" / "texts")]


def test_sources_without_a_name_take_their_paths_and_are_distinct(small_spec: str) -> None:
    sources = "data.sources=[{path: a/wiki}, {path: b/wiki}, {path: 'my notes.txt'}, {path: /}]"
    named = load_spec(small_spec, [sources]).data.sources
    assert [source.name for source in named] == ["wiki", "wiki-2", "my-notes.txt", "main"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is not a file"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    ],
)
def test_a_spec_file_that_cannot_be_read_is_refused(tmp_path: Path, make: Any, reason: str) -> None:
    path = tmp_path / "spec.yaml"
    make(path)
    error = refusal(str(path))
    assert error.code == "SPEC_NOT_READABLE"
    assert reason in error.message


def test_a_spec_file_of_more_than_a_megabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("#" * 1_000_001)
    assert refusal(str(path)).code == "SPEC_TOO_LARGE"


@pytest.mark.parametrize("text", ["\n", "- a: 1\n- b: 2", "a text\nof two lines"])
def test_a_document_that_is_no_mapping_is_refused(text: str) -> None:
    assert refusal(text).code == "WRONG_TYPE"


@pytest.mark.parametrize(
    ("sets", "code", "field"),
    [
        (["modle.n_layer=4"], "UNKNOWN_KEY", "modle"),
        (["model.n_heads=4"], "UNKNOWN_KEY", "model.n_heads"),
        (["model={n_layer: 4, n_head: 4, d_model: 128, bias: true}"], "UNKNOWN_KEY", "model.bias"),
        (["environment={pyton: x}"], "UNKNOWN_KEY", "environment.pyton"),
        (["data.sources=[{path: x, wieght: 2}]"], "UNKNOWN_KEY", "data.sources[0].wieght"),
        (["data.sources.nope.weight=2"], "UNKNOWN_KEY", "data.sources.nope"),
        (["data.sources[7].weight=2"], "UNKNOWN_KEY", "data.sources[7]"),
        (["optimizer.lr.max=1"], "UNKNOWN_KEY", "optimizer.lr.max"),
        (["model.n_layer=four"], "WRONG_TYPE", "model.n_layer"),
        (["model.n_layer='4'"], "WRONG_TYPE", "model.n_layer"),
        (["model.n_layer=4.5"], "WRONG_TYPE", "model.n_layer"),
        (["model.n_layer=true"], "WRONG_TYPE", "model.n_layer"),
        (["optimizer.weight_decay='0.1'"], "WRONG_TYPE", "optimizer.weight_decay"),
        (["optimizer.weight_decay=true"], "WRONG_TYPE", "optimizer.weight_decay"),
        (["seed=false"], "WRONG_TYPE", "seed"),
        (["pty=1"], "WRONG_TYPE", "pty"),
        (["pty=yes"], "WRONG_TYPE", "pty"),
        (["name=7"], "WRONG_TYPE", "name"),
        (["batch=8192"], "WRONG_TYPE", "batch"),
        (["data.sources={}"], "WRONG_TYPE", "data.sources"),
        (["data.sources=[corpus]"], "WRONG_TYPE", "data.sources[0]"),
        (["env.LEVEL=true"], "WRONG_TYPE", "env.LEVEL"),
        (["checkpoint.every=[1]"], "WRONG_TYPE", "checkpoint.every"),
        (["model.n_layer=0"], "INVALID_VALUE", "model.n_layer"),
        (["model.n_layer=1e12"], "INVALID_VALUE", "model.n_layer"),
        (["steps=-5"], "INVALID_VALUE", "steps"),
        (["steps=1e308"], "INVALID_VALUE", "steps"),
        (["optimizer.lr=0"], "INVALID_VALUE", "optimizer.lr"),
        (["optimizer.lr=.nan"], "INVALID_VALUE", "optimizer.lr"),
        (["optimizer.lr=1e308"], "INVALID_VALUE", "optimizer.lr"),
        (["optimizer.lr=fast"], "INVALID_VALUE", "optimizer.lr"),
        (["optimizer.betas=[0.9]"], "INVALID_VALUE", "optimizer.betas"),
        (["optimizer.betas=[0.9, 1.0]"], "INVALID_VALUE", "optimizer.betas[1]"),
        (["schedule.kind=cosin"], "INVALID_VALUE", "schedule.kind"),
        (["schedule.warmup_steps=300"], "INVALID_VALUE", "schedule.warmup_steps"),
        (["model.dropout=1"], "INVALID_VALUE", "model.dropout"),
        (["checkpoint.every=0"], "INVALID_VALUE", "checkpoint.every"),
        (["checkpoint.every=10 minutes"], "INVALID_VALUE", "checkpoint.every"),
        (["checkpoint.metric=accuracy"], "INVALID_VALUE", "checkpoint.metric"),
        (["limits.max_runtime=24:00:00"], "INVALID_VALUE", "limits.max_runtime"),
        (["name=-rf"], "INVALID_VALUE", "name"),
        (["name=a..b"], "INVALID_VALUE", "name"),
        (["name=../../etc"], "INVALID_VALUE", "name"),
        (["name=" + "x" * 64], "INVALID_VALUE", "name"),
        (["name='a b'"], "INVALID_VALUE", "name"),
        (["data.sources.main.name=../x"], "INVALID_VALUE", "data.sources[0].name"),
        (["data.sources.main.path=''"], "INVALID_VALUE", "data.sources[0].path"),
        (["data.sources=[]"], "INVALID_VALUE", "data.sources"),
        (
            ["data.sources=[{name: a, path: x}, {name: a, path: y}]"],
            "INVALID_VALUE",
            "data.sources[0].name",
        ),
        (["host=-oProxyCommand=x"], "INVALID_VALUE", "host"),
        (["host=[gpu1, -oProxyCommand=x]"], "INVALID_VALUE", "host[1]"),
        (["env.A-B=1"], "INVALID_VALUE", "env.A-B"),
        (["labels.a b=1"], "INVALID_VALUE", "labels.a b"),
        (["model.n_head=3"], "INVALID_VALUE", "model.n_head"),
        (["model.n_kv_head=3"], "INVALID_VALUE", "model.n_kv_head"),
        (["model.style=llama", "model.n_head=128"], "INVALID_VALUE", "model.n_head"),
        (["model.style=modern", "model.n_head=128"], "INVALID_VALUE", "model.n_head"),
        (["model.rope_base=500000"], "INVALID_VALUE", "model.rope_base"),
        (["model.value_embeddings=true"], "INVALID_VALUE", "model.value_embeddings"),
        (["model.ngram_embeddings=64"], "INVALID_VALUE", "model.ngram_embeddings"),
        (["model.activation=silu"], "INVALID_VALUE", "model.activation"),
        (["model.window=0"], "INVALID_VALUE", "model.window"),
        (
            ["model.style=modern", "compute.fp8_lm_head=true"],
            "INVALID_VALUE",
            "compute.fp8_lm_head",
        ),
        (["model.preset=gpt2-124m"], "INVALID_VALUE", "model.n_layer"),
        (["data.tokenizer=none"], "INVALID_VALUE", "data.tokenizer"),
        (["framework=hf", "model={path: /m, dropout: 0.1}"], "INVALID_VALUE", "model.dropout"),
        (["batch.tokens=127"], "INVALID_VALUE", "batch.tokens"),
        (["batch.tokens=8192", "batch.micro_batch=65"], "INVALID_VALUE", "batch.micro_batch"),
        (["tokens=5e6"], "INVALID_VALUE", "tokens"),
        (["steps=null", "tokens=100"], "INVALID_VALUE", "tokens"),
        (["steps=null", "tokens=9000", "data.seq_len=16384"], "INVALID_VALUE", "tokens"),
        (["phases=[{name: a, steps: 5}]"], "INVALID_VALUE", "phases"),
        (["steps"], "INVALID_VALUE", None),
        (["=5"], "INVALID_VALUE", None),
        (["steps=null"], "MISSING_FIELD", "steps"),
        (["model.d_model=null"], "MISSING_FIELD", "model.d_model"),
        (["data={sources: [{name: a}]}"], "MISSING_FIELD", "data.sources[0].path"),
        (["data={seq_len: 64}"], "MISSING_FIELD", "data.sources"),
    ],
)
def test_bad_input_is_refused_with_its_code_and_path(
    small_spec: str, sets: list[str], code: str, field: str | None
) -> None:
    error = refusal(small_spec, *sets)
    assert (error.code, error.field) == (code, field)
    assert error.fix
    assert error.retryable is False


@pytest.mark.parametrize(
    ("method", "metric", "is_reported"),
    [
        ("dpo", "val_rewards/margins", True),
        ("grpo", "val_reward", True),
        ("dpo", "val_perplexity", False),
        ("sft", "val_rewards/margins", False),
    ],
)
def test_the_best_checkpoint_is_chosen_by_a_metric_of_the_method(
    small_spec: str, method: str, metric: str, is_reported: bool
) -> None:
    sets = (f"method={method}", f"checkpoint.metric={metric}")
    problems = refusal(small_spec, "framework=trl", *sets, "schedule.warmup_steps=300").problems
    assert ("checkpoint.metric" in {problem.field for problem in problems}) is not is_reported


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "MY_SECRET", "DB_PASSWORD"])
def test_secrets_among_the_variables_are_refused_without_being_repeated(
    small_spec: str, name: str
) -> None:
    error = refusal(small_spec, f"env.{name}=hunter2")
    assert (error.code, error.field) == ("SECRET_IN_SPEC", f"env.{name}")
    assert "secrets" in error.fix
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("name", ["RUNPOD_API_KEY", "VAST_API_KEY", "lambda_api_key", "KAGGLE_KEY"])
def test_keys_that_rent_machines_are_never_a_training_s_secrets(small_spec: str, name: str) -> None:
    error = refusal(small_spec, f"secrets=[{name}]")
    assert (error.code, error.field) == ("SECRET_NOT_ALLOWED", "secrets[0]")


@pytest.mark.parametrize("missing", ["name: small\n", "framework: nanogpt\n", "steps: 200\n"])
def test_a_required_field_that_is_missing_is_named(small_spec: str, missing: str) -> None:
    error = refusal(small_spec.replace(missing, ""))
    assert error.code == "MISSING_FIELD"
    assert f"`{missing.partition(':')[0]}`" in error.message


@pytest.mark.parametrize(
    "value",
    [
        "method=sft",
        "method_args.beta=0.1",
        "adapter.r=8",
        "model={path: ./weights}",
        "model={hub: gpt2}",
        "optimizer.name=sophia",
        "precision=fp8",
        "checkpoint.mirror=s3://bucket/../x",
        "compute.gpus=2",
        "compute.nodes=2",
        "compute.strategy=ddp",
        "compute.preemptible=true",
        "tracking.tensorboard=true",
    ],
)
def test_what_is_not_built_is_refused_by_name(small_spec: str, value: str) -> None:
    error = refusal(small_spec, value)
    assert error.code == "NOT_YET_SUPPORTED"
    path = value.partition("=")[0]
    assert error.field is not None
    assert error.field.replace("[0]", ".main").startswith(path.split(".")[0])


def test_tokens_by_the_models_size_are_for_new_weights_alone(small_spec: str) -> None:
    auto = ("steps=null", "tokens=auto")
    assert load_spec(small_spec, auto).tokens == "auto"
    error = refusal(small_spec, *auto, "framework=hf", "model={path: /weights}")
    assert (error.code, error.field) == ("INVALID_VALUE", "tokens")


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("100B", 100 * 10**9),
        ("1.5T", 1_500 * 10**9),
        ("300k", 300_000),
        ("2 M", 2_000_000),
        ("2e9", 2 * 10**9),
    ],
)
def test_tokens_are_written_as_people_write_them(small_spec: str, written: str, count: int) -> None:
    length = ("steps=null", f"tokens={written}")
    assert load_spec(small_spec, length).tokens == count
    assert load_spec(small_spec, [f"batch.tokens={written}"]).batch.tokens == count
    phases = f"phases=[{{name: a, tokens: {written}, batch: 10k}}]"
    (phase,) = load_spec(small_spec, ["steps=null", phases]).phases or ()
    assert (phase.tokens, phase.batch) == (count, 10_000)


@pytest.mark.parametrize("written", ["100X", "1.0005k", "-3B", "B"])
def test_a_number_of_tokens_that_is_none_is_refused_with_what_is_accepted(
    small_spec: str, written: str
) -> None:
    error = refusal(small_spec, "steps=null", f"tokens={written}")
    assert error.field == "tokens"
    assert "100B" in error.fix


def test_everything_that_is_wrong_is_reported_at_once(small_spec: str) -> None:
    text = small_spec.replace("n_head: 4", "n_head: 3").replace("steps: 200", "sed: 1")
    error = refusal(text + "pty: maybe\n")
    reported = {problem.field for problem in error.problems}
    assert reported == {"sed", "pty", "steps", "model.n_head"}
    assert all(problem.message in error.message for problem in error.problems)


def test_an_unknown_key_comes_with_the_one_that_was_probably_meant(small_spec: str) -> None:
    assert "Did you mean `n_layer`?" in refusal(small_spec, "model.n_layers=2").message


def test_a_refused_value_comes_with_what_is_accepted(small_spec: str) -> None:
    assert "cosine | linear | constant" in refusal(small_spec, "schedule.kind=x").fix
    assert "1, 2, 4, 8, 16, 32, 64" in refusal(small_spec, "model.n_head=3").fix

"""What a bundle holds for each framework, as a user of that framework would read it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.home.assets import find_assets
from trainmaster.plan import (
    CorpusFacts,
    GpuFacts,
    HostFacts,
    ModelFacts,
    Plan,
    TokenizerFacts,
    TorchFacts,
    plan,
)
from trainmaster.plan.render import Bundle, render
from trainmaster.plan.spec import load_spec

Corpora = Callable[..., CorpusFacts]

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "render"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_SCRIPTS = _GOLDEN.parent / "scripts"
_SIZES = "model: {n_layer: 12, n_head: 12, d_model: 768, style: llama}\n"
_WEIGHTS = "model: {path: host:/models/llama}\n"
_ROWS = "jsonl"
# Of 1.1 billion parameters.
_LLAMA = ModelFacts(
    path="host:/models/llama",
    model_type="llama",
    parameters=1_100_048_384,
    n_layer=22,
    n_head=32,
    n_kv_head=4,
    d_model=2048,
    d_ff=5632,
    vocab_size=32000,
    tied=False,
    max_positions=2048,
    has_tokenizer=True,
)
_TOKENIZER = TokenizerFacts(
    path="host:/models/llama", of_model=True, digest="0123456789abcdef", vocab_size=32000
)
# By the name of the golden folder: what the spec says, the format of its data, and the golden of
# its train.py.
_CASES = {
    "litgpt": ("framework: litgpt\nmodel: {preset: pythia-160m}\n", "text", "litgpt_pretrain"),
    "litgpt-ddp": (
        f"framework: litgpt\ncompute: {{gpus: 2, strategy: ddp}}\n{_SIZES}",
        "text",
        "litgpt_pretrain",
    ),
    "hf": (f"framework: hf\n{_SIZES}", "text", "hf_new"),
    "hf-ddp": (f"framework: hf\ncompute: {{gpus: 2}}\n{_SIZES}", "text", "hf_new"),
    "hf-zero3": (
        f"framework: hf\ncompute: {{gpus: 2, strategy: zero3}}\n{_WEIGHTS}",
        "text",
        "hf_existing",
    ),
    "trl-sft-lora": (
        f"framework: trl\nadapter: {{r: 16, quantize: nf4}}\n{_WEIGHTS}",
        _ROWS,
        "trl_sft_lora",
    ),
    "trl-dpo": (f"framework: trl\nmethod: dpo\n{_WEIGHTS}", "preference", "trl_dpo_full"),
    "trl-grpo": (
        f"framework: trl\nmethod: grpo\nmethod_args: {{reward_file: /reward.py}}\n{_WEIGHTS}",
        _ROWS,
        "trl_grpo_full",
    ),
}
# What each bundle holds besides the framework's own files.
_OURS = {"train.py", "training_config.yaml", "config.json", "train.sh"}


@pytest.fixture
def host(cpu_host: HostFacts) -> HostFacts:
    gpus = tuple(
        GpuFacts(index=index, name="NVIDIA A100-SXM4-80GB", memory_gib=79.2, memory_free_gib=79.2)
        for index in range(2)
    )
    torch = TorchFacts(version="2.13.0", cuda="13.0", cuda_available=True, bf16_gpu=True)
    update = {"gpus": gpus, "torch": torch, "disk_free_gib": 900.0, "cores": 16.0}
    return cpu_host.model_copy(update=update)


@pytest.fixture
def bundles(host: HostFacts, one_source: Corpora) -> Callable[[str], Bundle]:
    def make(case: str) -> Bundle:
        text, data_format, _ = _CASES[case]
        source = f"{{name: main, path: /corpus, format: {data_format}}}"
        spec = load_spec(
            f"name: small\nsteps: 2000\nbatch: {{tokens: 65536}}\n{text}"
            f"data: {{sources: [{source}], seq_len: 1024}}\n"
        )
        weights: tuple[Any, ...] = (_LLAMA, _TOKENIZER) if spec.continues else (None, None)
        made: Plan = plan(spec, host, one_source(examples=5000), None, *weights)
        return render(made, "small-abc234", find_assets())

    return make


@pytest.mark.parametrize("case", _CASES)
def test_the_frameworks_own_files_are_the_golden_ones(
    case: str, bundles: Callable[[str], Bundle]
) -> None:
    files = {
        name: content.decode()
        for name, content in bundles(case).files.items()
        if name not in _OURS and not name.startswith(("trainer_runtime/", "tokenizer/"))
    }
    folder = _GOLDEN / case
    if _UPDATE:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
    assert files == {file.name: file.read_text() for file in folder.iterdir()}


@pytest.mark.parametrize("case", _CASES)
def test_the_script_is_that_of_the_runs_kind(case: str, bundles: Callable[[str], Bundle]) -> None:
    files, script = bundles(case).files, _CASES[case][2]
    assert files["train.py"].decode() == (_SCRIPTS / f"{script}.py").read_text()
    assert files["train.sh"] == (find_assets().templates / "launch/train.sh").read_bytes()

"""Ten classic trainings: their specs, and what the paper or recipe used, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TEXT = "data: {sources: [{path: ./corpus}], tokenizer: gpt2}"
_ROWS = "data: {sources: [{path: ./rows, format: jsonl}]}"
COLUMNS = (
    "machine",
    "tokens a sequence",
    "sequences a step",
    "rate",
    "warm-up steps",
    "rate's end",
    "weight decay",
    "steps",
    "GPU-hours",
)


@dataclass(frozen=True, slots=True)
class Setup:
    """`on`: the machine; `spec`: YAML without a name; `published`: a cell for each column."""

    name: str
    on: str
    spec: str
    source: str
    published: tuple[str, ...] = field(default_factory=tuple)


SETUPS = (
    Setup(
        "GPT-2 124M on one A100",
        "a100:1",
        "framework: nanogpt\nmodel: {preset: gpt2-124m}\noptimizer: {name: adamw}\n"
        f"{_TEXT}\ntokens: 10B\n",
        "llm.c, discussion 481",
        ("8 A100", "1,024", "512", "0.0006", "700", "cosine to 0", "0.1", "18,865", "12"),
    ),
    Setup(
        "1.4B on 8 A100",
        "a100:8",
        f"framework: hf\nmodel: {{preset: pythia-1.4b}}\n{_TEXT}\ntokens: 300B\n",
        "Biderman et al. 2023 (Pythia), table 5, and its pythia-1.4b.yml",
        (
            "64 A100 of 40 GB",
            "2,048",
            "1,024",
            "0.0002",
            "1,430",
            "cosine to 0.1",
            "0.1",
            "143,000",
            "7,120",
        ),
    ),
    Setup(
        "7B on 100B tokens, 8 A100",
        "a100:8",
        f"framework: hf\nmodel: {{preset: llama-7b}}\n{_TEXT}\ntokens: 100B\n",
        "Touvron et al. 2023 (LLaMA), tables 2 and 15; 1T tokens, of which a tenth",
        (
            "A100 of 80 GB",
            "2,048",
            "2,048",
            "0.0003",
            "2,000",
            "cosine to 0.1",
            "0.1",
            "23,842",
            "8,243",
        ),
    ),
    Setup(
        "8B LoRA on 24 GB",
        "4090",
        "framework: trl\nmethod: sft\nmodel: {hub: meta-llama/Llama-3.1-8B}\n"
        f"adapter: {{r: 8}}\n{_ROWS}\nsteps: 3235\n",
        "torchtune, llama3/8B_lora_single_device.yaml",
        ("24 GB", "as in Alpaca", "16", "0.0003", "100", "cosine to 0", "0.01", "3,235", "—"),
    ),
    Setup(
        "7B QLoRA on a T4",
        "t4",
        "framework: trl\nmethod: sft\nmodel: {hub: meta-llama/Llama-2-7b-hf}\n"
        f"adapter: {{r: 64, quantize: nf4}}\n{_ROWS}\nsteps: 1875\n",
        "Dettmers et al. 2023 (QLoRA), finetune_guanaco_7b.sh",
        ("24 GB", "528", "16", "0.0002", "56", "constant", "0", "1,875", "—"),
    ),
    Setup(
        "70B SFT on 8 H100",
        "h100:8",
        "framework: trl\nmethod: sft\nmodel: {hub: meta-llama/Llama-3.1-70B}\n"
        f"{_ROWS}\nsteps: 14677\n"
        "compute: {strategy: zero3_offload, activation_checkpointing: true}\n",
        "Lambert et al. 2024 (Tulu 3), open-instruct's tulu3.md",
        ("64 H100", "4,096", "128", "2e-06", "440", "linear to 0", "0", "14,677", "—"),
    ),
    Setup(
        "13B on four nodes of A100",
        "a100:32",
        f"framework: hf\nmodel: {{preset: llama-13b}}\n{_TEXT}\ntokens: 1T\n",
        "Touvron et al. 2023 (LLaMA), tables 2 and 15",
        (
            "A100 of 80 GB",
            "2,048",
            "2,048",
            "0.0003",
            "2,000",
            "cosine to 0.1",
            "0.1",
            "238,418",
            "135,168",
        ),
    ),
    Setup(
        "Mixtral tuned on one A100",
        "a100:1",
        "framework: litgpt\nmethod: sft\nmodel: {hub: mistralai/Mixtral-8x7B-v0.1}\n"
        f"adapter: {{r: 16, quantize: nf4}}\n{_ROWS}\nsteps: 12992\n",
        "Hugging Face's blog on Mixtral, 2023: UltraChat's 207,865 rows",
        ("A100", "—", "2", "0.0002", "—", "linear to 0", "0", "103,932", "48"),
    ),
    Setup(
        "DPO of 8B on 8 H100",
        "h100:8",
        "framework: trl\nmethod: dpo\nmodel: {hub: allenai/Llama-3.1-8B}\n"
        f"{_ROWS}\nsteps: 2120\n",
        "Lambert et al. 2024 (Tulu 3), open-instruct's tulu3.md",
        ("8 H100", "2,048", "128", "5e-07", "212", "linear to 0", "0", "2,120", "—"),
    ),
    Setup(
        "350M in a Kaggle session, 2 T4",
        "kaggle",
        "framework: hf\nmodel: {preset: gpt2-350m}\noptimizer: {name: adamw8bit}\n"
        f"{_TEXT}\ntokens: 1B\n",
        "Brown et al. 2020 (GPT-3), table 2.1; 300B tokens",
        (
            "V100s",
            "2,048",
            "256",
            "0.0003",
            "715",
            "cosine to 0.1",
            "0.1",
            "572,204",
            "—",
        ),
    ),
)


def planned_cells(config: Mapping[str, Any], gpus: str, estimates: Mapping[str, Any]) -> list[str]:
    """What a plan has in each column."""
    optimizer, schedule = config["optimizer"], config["schedule"]
    end = schedule["kind"]
    if end != "constant":
        end += f" to {schedule['min_lr_ratio']:g}"
    count = config["compute"].get("processes", 1)
    hours = estimates.get("hours")
    return [
        gpus.replace("NVIDIA ", ""),
        f"{config['data']['seq_len']:,}",
        f"{config['derived']['sequences_per_step']:,}",
        f"{optimizer['lr']:g}",
        f"{schedule['warmup_steps']:,}",
        end,
        f"{optimizer['weight_decay']:g}",
        f"{config['steps']:,}",
        "—" if hours is None else f"{hours * count:,.0f}",
    ]

"""Words of a message that an explanation may repeat: only those of these lists, and numbers."""

from __future__ import annotations

import re

_INSTALLED_ALIKE = """
    accelerate aiohttp albumentations apex autoawq av bert-score bitsandbytes boto3
    causal-conv1d clearml cmake datasets decord deepspeed diffusers einops evaluate fire
    flash-linear-attention flashinfer-python fsspec galore-torch gcsfs gguf gptqmodel gradio hqq
    hydra-core jax jaxlib jinja2 jiwer keras kernels librosa lightning lion-pytorch litgpt
    llamafactory lm-eval mamba-ssm math-verify matplotlib mlflow mmcv mmengine
    mosaicml-streaming mpi4py neptune ninja nltk numpy omegaconf onnx onnxruntime openai optimum
    packaging pandas peft pip protobuf psutil pyarrow pycocotools pydantic pynvml quanto ray
    regex requests rouge-score s3fs sacrebleu safetensors schedulefree scikit-learn scipy
    sentencepiece seqeval setuptools sglang soundfile swanlab tensorboard tensorboardx
    tensorflow tf-keras tiktoken timm tokenizers torch torchao torchaudio torchcodec torchdata
    torchvision tqdm transformer-engine transformers triton trl unsloth unsloth-zoo urllib3 vllm
    wandb webdataset wheel xformers xgboost
"""
_SETTINGS = """
    attn_implementation bf16 bos_token chat_template completion_only_loss data_collator
    deepspeed device_map do_eval eval_dataset eval_packing eval_sample_packing eval_strategy
    fp16 fsdp gradient_checkpointing group_by_length load_best_model_at_end load_in_4bit
    load_in_8bit max_length max_seq_length max_steps model_init num_generations num_train_epochs
    packing padding_free peft_config per_device_train_batch_size quantization_config ref_model
    remove_unused_columns sample_packing save_steps save_strategy streaming tokenizer
    torch_compile torch_dtype train_on_inputs use_cache use_liger_kernel val_set_size vllm_mode
"""
# As they are imported, and as they are installed where that differs.
_PACKAGES = {
    **dict.fromkeys(_INSTALLED_ALIKE.split()),
    "auto_gptq": "auto-gptq",
    "comet_ml": "comet-ml",
    "cut_cross_entropy": "cut-cross-entropy",
    "cv2": "opencv-python",
    "flash_attn": "flash-attn",
    "FlashAttention2": "flash-attn",
    "google.protobuf": "protobuf",
    "hf_transfer": "hf-transfer",
    "hf_xet": "hf-xet",
    "huggingface_hub": "huggingface-hub",
    "liger_kernel": "liger-kernel",
    "megatron": "megatron-core",
    "PIL": "pillow",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "sklearn": "scikit-learn",
    "transformer_engine": "transformer-engine",
    "tf_keras": "tf-keras",
    "unsloth_zoo": "unsloth-zoo",
    "yaml": "pyyaml",
}
_NAMES = {
    spelled.lower(): installed or spelled
    for name, installed in _PACKAGES.items()
    for spelled in (name, installed or name)
}
_VERSION = r"\d{1,5}(?:\.\d{1,5}){0,3}"
_BOUND = re.compile(rf"(?:[<>!=~]=?{_VERSION})(?:,[<>!=~]=?{_VERSION}){{0,3}}")


def package_of(text: str) -> str | None:
    """The name by which a package is installed, None for one that is not in the list."""
    return _NAMES.get(text.lower())


def setting_of(text: str) -> str | None:
    """A training's setting by its usual name, None for one that is not in the list."""
    return text if text in _SETTINGS.split() else None


def version_of(text: str) -> str | None:
    """`4.57.1`, or bounds (`>=4.49,<=4.55`)."""
    text = text.replace(" ", "")
    return text if re.fullmatch(_VERSION, text) or _BOUND.fullmatch(text) else None

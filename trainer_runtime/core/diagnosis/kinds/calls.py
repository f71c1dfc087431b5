"""Calls of the program's own that PyTorch, datasets or the network refuse."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "split_missing",
        "The data set has no split of this name.",
        (
            "`print(dataset)` lists them; take a part of train for the evaluation "
            "(dataset.train_test_split, split='train[:5%]').",
        ),
        (
            Wording(
                r"\bKeyError: '(?:train|validation|valid|val|test|dev)'\s*$",
                "KeyError: 'validation'",
                "datasets, dataset_dict.py",
            ),
        ),
        instead_of=("dataset_columns",),
        confidence=0.8,
    ),
    Kind(
        "ddp_model_devices",
        "DDP was given a model that is not on one GPU: on the CPU, or spread over several.",
        (
            "Move it to the process's own GPU before wrapping it (LOCAL_RANK), without "
            "device_map='auto'.",
        ),
        (
            Wording(
                r"\bdevice_ids and output_device arguments only work with single-device"
                r"|\bDistributedDataParallel's input module must be on the same type of devices",
                "ValueError: DistributedDataParallel device_ids and output_device arguments only "
                "work with single-device/multiple-device GPU modules or CPU modules",
                "PyTorch, torch/nn/parallel/distributed.py",
            ),
        ),
        instead_of=("device_mismatch",),
    ),
    Kind(
        "not_contiguous",
        "An operation needs a tensor that lies in memory without gaps (contiguous), and gets a "
        "view such as a transposed one.",
        ("Use .reshape() in the place of .view(), or call .contiguous() on it first.",),
        (
            Wording(
                r"\bview size is not compatible with input tensor's size and stride"
                r"|\bTensors must be contiguous|\bYou are trying to save a non contiguous tensor",
                "RuntimeError: view size is not compatible with input tensor's size and stride",
                "PyTorch, aten/src/ATen/native/TensorShape.cpp; safetensors, torch.py",
            ),
        ),
    ),
    Kind(
        "target_form",
        "The labels have another form than the loss function takes: class numbers, one-hot rows, "
        "or a row for several labels.",
        (
            "CrossEntropyLoss takes class numbers (integers, one a row); BCEWithLogitsLoss rows "
            "of floats; set problem_type where transformers chooses the loss.",
        ),
        (
            Wording(
                r"\bmulti-target not supported at|\btarget tensor expected, multi-target not "
                r"supported|\bexpected floating point type for target with class probabilities",
                "RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
                "PyTorch, aten/src/ATen/native/LossNLL.cpp",
            ),
        ),
    ),
    Kind(
        "connection_refused",
        "Nothing listens at the address that the program connects to: a server was not started, "
        "has ended, or has another port.",
        (
            "Check that the server runs (its own log), and that host and port are those at which "
            "it listens; on another machine, that it does not listen on 127.0.0.1 alone.",
        ),
        (
            Wording(
                r"\bConnectionRefusedError: \[Errno (?:111|61)\]",
                "ConnectionRefusedError: [Errno 111] Connection refused",
                "Linux, ECONNREFUSED",
                unless=r"(?i)retry|warn",
            ),
        ),
        confidence=0.7,
        retryable=True,
    ),
    Kind(
        "generation_tokens_missing",
        "Generating needs a special token that the model's configuration does not name.",
        (
            "Set decoder_start_token_id, bos_token_id, eos_token_id and pad_token_id in the "
            "model's (generation) configuration from its tokenizer.",
        ),
        (
            Wording(
                r"\b(?:decoder_start_token_id|bos_token_id|eos_token_id|pad_token_id)\W{1,3}"
                r"(?:or \W?bos_token_id\W? )?(?:has to be|must be|is not|to be) defined"
                r"|\bMake sure to set the decoder_start_token_id attribute",
                "ValueError: `decoder_start_token_id` or `bos_token_id` has to be defined for "
                "encoder-decoder generation.",
                "transformers, generation/utils.py",
            ),
        ),
    ),
)

"""Downloads of models and data sets, and how data sets are named and checked."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "download_incomplete",
        "A download is shorter than it should be, or its check sum is another.",
        (
            "Delete the file from the cache (`hf cache`), and download again; behind a proxy, "
            "check what it returns.",
        ),
        (
            Wording(
                r"\bConsistency check failed: file should be of size"
                r"|\bNonMatching(?:Checksum|SplitsSizes)Error\b|\bChecksums didn't match"
                r"|\bExpected(?:More|Fewer)(?:Splits|DownloadedFiles)(?:Error)?\b"
                r"|\bUnexpectedDownloadedFile\b"
                r"|\bIncompleteRead\(\d+ bytes read",
                "OSError: Consistency check failed: file should be of size 5033164800 but has "
                "size 104857600",
                "huggingface_hub, file_download.py; datasets, utils/info_utils.py",
                unless=r"(?i)retry",
            ),
        ),
        instead_of=("hf_network",),
    ),
    Kind(
        "hub_transfer_service",
        "The hub's transfer service (Xet) failed.",
        (
            "Try again with HF_HUB_DISABLE_XET=1, or upgrade hf_xet; a firewall has to allow "
            "cas-server.xethub.hf.co.",
        ),
        (
            Wording(
                r"\bCAS [Ss]ervice [Ee]rror|\bcas_client::|\bxet_get\b.{0,80}[Ee]rror"
                r"|\bData processing error: .{0,80}(?:CAS|xet)",
                "RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error",
                "hf_xet",
                unless=r"(?i)retry",
            ),
        ),
        instead_of=("hf_network",),
    ),
    Kind(
        "dataset_config_name",
        "The data set has several configurations or splits, and the one that is named is none of "
        "them.",
        ("Name one of those that the message lists (`load_dataset(path, name, split=...)`).",),
        (
            Wording(
                r"\bBuilderConfig '[^']{1,120}' not found\. Available"
                r"|\bConfig name is missing\b|\bUnknown split \"[^\"]{1,80}\"\. Should be one of"
                r"|\bBad split: \w+\. Available splits",
                "ValueError: BuilderConfig 'en' not found. Available: ['default']",
                "datasets, builder.py",
            ),
        ),
        instead_of=("data_file_missing",),
    ),
    Kind(
        "saved_dataset_form",
        "A data set that was saved by save_to_disk is loaded in another way, or the reverse.",
        ("Use load_from_disk for what save_to_disk wrote, load_dataset for files and the hub.",),
        (
            Wording(
                r"\bis neither a .Dataset. directory nor a .DatasetDict. directory"
                r"|\byou are trying to load a dataset that was saved using .save_to_disk",
                "FileNotFoundError: Directory data is neither a `Dataset` directory nor a "
                "`DatasetDict` directory.",
                "datasets, load.py",
            ),
        ),
        instead_of=("data_file_missing",),
    ),
    Kind(
        "datasets_version",
        "The installed datasets does not fit fsspec, or the data that it reads.",
        ("Upgrade datasets (`pip install -U datasets fsspec`) and delete its old cache.",),
        (
            Wording(
                r"\bInvalid pattern: '\*\*' can only be an entire path component"
                r"|\bLoading a dataset cached in a LocalFileSystem is not supported"
                r"|\bFeature type '\w+' not found\. Available feature types"
                r"|\bmust be called with a dataclass type or instance",
                "ValueError: Invalid pattern: '**' can only be an entire path component",
                "fsspec, spec.py; datasets, builder.py",
            ),
        ),
    ),
    Kind(
        "arrow_overflow",
        "A column has more text than Arrow's 32-bit offsets can address in one piece.",
        ("Use smaller batches (batch_size, writer_batch_size), or large_string columns.",),
        (
            Wording(
                r"\boffset overflow while concatenating arrays|\bArrowCapacityError\b"
                r"|\barray cannot contain more than 2147483646 bytes",
                "pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays",
                "Apache Arrow, cpp/src/arrow/array/concatenate.cc",
            ),
        ),
    ),
    Kind(
        "map_worker_killed",
        "A worker of the data set's preparation was killed, mostly because the host's memory ran "
        "out.",
        (
            "Use fewer workers (num_proc) and smaller batches (writer_batch_size); `dmesg -T` "
            "shows the out-of-memory killer; num_proc=1 shows an error of the function itself.",
        ),
        (
            Wording(
                r"\bOne of the subprocesses has abruptly died during map operation",
                "RuntimeError: One of the subprocesses has abruptly died during map operation.To "
                "debug the error, disable multiprocessing.",
                "datasets, utils/py_utils.py",
                confidence=0.8,
            ),
        ),
        instead_of=("host_oom", "dataloader_crash"),
        confidence=0.8,
    ),
    Kind(
        "data_generation",
        "Reading a data set's files failed; the error that led to it is named above.",
        (
            "Load the files one by one to find the first that fails: other columns or types, a "
            "cut file, an encoding.",
            "Give `features=` where a column is empty in the first rows.",
        ),
        (
            Wording(
                r"\bAn error occurred while generating the dataset"
                r"|\bDatasetGenerationError\b",
                "datasets.exceptions.DatasetGenerationError: An error occurred while generating "
                "the dataset",
                "datasets, builder.py",
                confidence=0.6,
            ),
        ),
        confidence=0.6,
        ends=False,
        follows=("columns_of_mixed_types", "data_malformed", "dataset_columns", "disk_full"),
    ),
    Kind(
        "row_out_of_range",
        "A row is asked for that the data set does not have: it is empty, or shorter than its "
        "index.",
        ("Count the rows after each step of preparation; remove_unused_columns may leave none.",),
        (
            Wording(
                r"\bInvalid key: \d+ is out of bounds for size \d+"
                r"|\bIndex \d+ out of range for dataset of size \d+",
                "IndexError: Invalid key: 0 is out of bounds for size 0",
                "datasets, formatting/formatting.py",
            ),
        ),
        instead_of=("index_out_of_range", "data_empty"),
    ),
    Kind(
        "tokenizer_max_length",
        "The tokenizer's longest length is not set, and the number that stands for it is too "
        "large.",
        ("Pass max_length, or set tokenizer.model_max_length to the model's context.",),
        (
            Wording(
                r"\bOverflowError: int too big to convert"
                r"|\bOverflowError: Python int too large to convert to C",
                "Traceback (most recent call last):\n"
                '  File "/env/site-packages/transformers/tokenization_utils_fast.py", line 9, in '
                "set_truncation_and_padding\n"
                "OverflowError: int too big to convert",
                "transformers, tokenization_utils_fast.py",
                after=r"tokeniz",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
    ),
    Kind(
        "label_count",
        "Labels or classes are more than the model's outputs, or of another form.",
        (
            "Set num_labels to the number of classes (labels from 0 on), and problem_type for "
            "several labels a row.",
        ),
        (
            Wording(
                r"\bTarget size \(.{1,60}\) must be the same as input size"
                r"|\bTarget \d+ is out of bounds|\bt >= 0 && t < n_classes"
                r"|\bClassification metrics can't handle a mix of",
                "ValueError: Target size (torch.Size([8])) must be the same as input size "
                "(torch.Size([8, 3]))",
                "PyTorch, torch/nn/functional.py",
            ),
        ),
        instead_of=("index_out_of_range", "shape_mismatch", "cuda_illegal_memory"),
    ),
    Kind(
        "adapter_rank_differs",
        "The adapter was saved with another rank than the one that loads it.",
        ("Use the `r` of its adapter_config.json (PeftModel.from_pretrained reads it).",),
        (
            Wording(
                r"\bsize mismatch for [\w.]{0,240}\.lora_[AB](?:\.\w+)?\.weight: copying a param"
                r"|\bLoRA rank \d+ is greater than max_lora_rank",
                "size mismatch for base_model.model.q_proj.lora_A.default.weight: copying a param "
                "with shape torch.Size([16, 4096]) from checkpoint, the shape in current model is "
                "torch.Size([8, 4096]).",
                "PyTorch, torch/nn/modules/module.py; vLLM",
            ),
        ),
        instead_of=("checkpoint_shape_mismatch",),
    ),
    Kind(
        "checkpoint_keys_missing",
        "The sharded checkpoint lacks entries that the training wants: it holds the weights only, "
        "or the model or optimizer has changed since.",
        (
            "Load what there is (strict=False, allow_partial_load) or without the optimizer; else "
            "use the configuration that saved it.",
        ),
        (
            Wording(
                r"\bMissing key in checkpoint state_dict: "
                r"|\bsaved state_dict .{0,80}does not contain key",
                "RuntimeError: Missing key in checkpoint state_dict: optimizer.state.exp_avg.",
                "PyTorch, torch/distributed/checkpoint/default_planner.py",
            ),
        ),
        instead_of=("checkpoint_incomplete", "checkpoint_shape_mismatch"),
    ),
)

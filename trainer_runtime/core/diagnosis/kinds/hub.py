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
        instead_of=("dataloader_crash",),
        follows=("host_oom", "disk_full", "disk_quota"),
        ends=False,
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
                r"|\bReceived a label value of -?\d+ which is outside the valid range"
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
                r"\bsize mismatch for [\w.]{0,240}\.lora_[AB](?:\.\w+)?\.weight: copying a param",
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
    Kind(
        "hub_entry_missing",
        "The hub has no such file or revision in this repository.",
        ("Check file name and revision on its page; a private one is reported in the same way.",),
        (
            Wording(
                r"\bEntry Not Found for url: |\bRevision Not Found for url: "
                r"|\b(?:Remote)?EntryNotFoundError\b|\bRevisionNotFoundError\b",
                "huggingface_hub.errors.EntryNotFoundError: 404 Client Error. Entry Not Found for "
                "url: https://huggingface.co/abc/model/resolve/main/config.json.",
                "huggingface_hub, utils/_http.py",
                unless=r"(?i)warn|LocalEntryNotFound",
                confidence=0.85,
            ),
        ),
        instead_of=("hf_gated_repo", "hf_network"),
        confidence=0.85,
    ),
    Kind(
        "network_unreachable",
        "A host on the network is not found or does not answer.",
        (
            "Check name, DNS and firewall from that machine (`getent hosts NAME`, `curl -v`); "
            "compute nodes often have no internet: download before the job, or set a proxy.",
        ),
        (
            Wording(
                r"\bTemporary failure in name resolution|\bName or service not known"
                r"|\bNetwork is unreachable|\bNo route to host|\bgaierror: \[Errno -\d\]"
                r"|\b(?:ConnectTimeout|ReadTimeout|ConnectTimeoutError|NewConnectionError)\b",
                "httpx.ConnectError: [Errno -3] Temporary failure in name resolution",
                "glibc's resolver; httpx; urllib3",
                unless=r"(?i)retry|huggingface|hf\.co|wandb|c10d|torch\.distributed|gai error"
                r"|socket\.cpp|cannot be retrieved|NCCL WARN",
                confidence=0.8,
            ),
        ),
        # The outermost error of a chain names whose host it is.
        follows=(
            *("hf_network", "rendezvous_unreachable", "tracker_unreachable", "tracker_refused"),
            *("model_server_failed", "server_without_training_mode", "ray_unreachable"),
            *("cloud_credentials", "cloud_object_missing", "download_incomplete"),
            *("hub_rate_limit", "hub_entry_missing", "hub_transfer_service", "tls_untrusted"),
        ),
        confidence=0.8,
    ),
    Kind(
        "data_file_corrupt",
        "A file of data is damaged, cut off, or of another format than its name says.",
        (
            "Find the file (its name is in the frames or the line) and write or download it "
            "again; skip images that do not open.",
        ),
        (
            Wording(
                r"\bParquet magic bytes not found|\bfile signature not found"
                r"|\bcannot identify image file|\bimage file is truncated"
                r"|\bbroken data stream when reading image|\bBadGzipFile: Not a gzipped file"
                r"|\bInvalid (?:flatbuffers|IPC) (?:message|stream)|\bNot an Arrow file"
                r"|\bCompressed file ended before the end-of-stream",
                "PIL.UnidentifiedImageError: cannot identify image file 'a.png'",
                "Pillow, PIL/Image.py; Apache Arrow; HDF5",
                unless=r"(?i)warn|skip",
                confidence=0.88,
            ),
        ),
        instead_of=("data_malformed",),
        confidence=0.88,
    ),
    Kind(
        "csv_malformed",
        "A table's rows have different numbers of fields.",
        ("Check separator and quotes (`sep=`, `quotechar=`) at the line that it names.",),
        (
            Wording(
                r"\bError tokenizing data\. C error|\bCSV parse error: Expected \d+ columns",
                "pandas.errors.ParserError: Error tokenizing data. C error: Expected 3 fields in "
                "line 5, saw 4",
                "pandas, _libs/parsers.pyx; Apache Arrow",
            ),
        ),
        instead_of=("data_malformed", "columns_of_mixed_types"),
    ),
    Kind(
        "chat_rows_form",
        "Conversations of the data don't have the form that the chat template asks for.",
        (
            "Give a list of {role, content} in each row, system first where the template allows "
            "it, then user and assistant in turn; format one row alone to see which fails.",
        ),
        (
            Wording(
                r"\bjinja2\.exceptions\.(?:TemplateError|UndefinedError|TemplateRuntimeError): "
                r"|\bConversation roles must alternate|\bAfter the optional system message, "
                r"conversation roles must alternate",
                "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant",
                "chat templates of models; Jinja2",
            ),
        ),
    ),
    Kind(
        "image_tokens_cut",
        "Images have more tokens than the rows: truncation cut them, or the processor is of "
        "another version than the model.",
        (
            "Raise max_length (or set it to None), shrink images (max_pixels), and load the "
            "processor that belongs to the model.",
        ),
        (
            Wording(
                r"\bImage features and image tokens do not match"
                r"|\bMismatch in .image. token count between text and"
                r"|\bis too short and causes image placeholder",
                "ValueError: Image features and image tokens do not match: tokens: 1536, features "
                "2304",
                "transformers, models; TRL, trainer/sft_trainer.py",
            ),
        ),
    ),
    Kind(
        "processor_missing",
        "The model needs a processor for images or sound, and none is found for it.",
        (
            "Check preprocessor_config.json in the model's folder, install pillow and "
            "torchvision, and upgrade transformers where the model is newer.",
        ),
        (
            Wording(
                r"\bProcessor was not found|\bUnrecognized (?:image processor|processing class|"
                r"feature extractor) in\b",
                "ValueError: Processor was not found, please check and update your processor "
                "config.",
                "LLaMA-Factory, data/mm_plugin.py; transformers",
            ),
        ),
    ),
)

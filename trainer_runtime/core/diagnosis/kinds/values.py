"""Values and texts that a function of a library refuses, and Pythons other than a program's own."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "python_too_new",
        "The program or a package was written for an older Python than the one that runs it.",
        (
            "Use a newer version of the package whose file the last frame names, or the Python "
            "that it was written for (dataclasses with mutable defaults: 3.10).",
        ),
        (
            Wording(
                r"\bmutable default .{1,120} for field \w+ is not allowed: use default_factory"
                r"|\bmodule 'inspect' has no attribute 'getargspec'"
                r"|\bmodule '(?:collections|fractions|asyncio|gettext)' has no attribute '\w+'"
                r"|\bcannot import name '\w+' from 'collections' \(",
                "ValueError: mutable default <class 'a.B'> for field c is not allowed: use "
                "default_factory",
                "Python, dataclasses.py, inspect.py",
                confidence=0.8,
            ),
        ),
        instead_of=("package_mismatch", "library_versions"),
    ),
    Kind(
        "default_encoding",
        "Text is read or written in the system's own encoding, which lacks a character of it.",
        (
            'Name the encoding (open(..., encoding="utf-8")), or set PYTHONUTF8=1 (in a container '
            "also LANG=C.UTF-8).",
        ),
        (
            Wording(
                r"\bUnicode(?:De|En)codeError: '(?:ascii|charmap|cp\d+|gbk|latin-1)' codec can't",
                "UnicodeEncodeError: 'ascii' codec can't encode character '\\u2019' in position "
                "10: ordinal not in range(128)",
                "Python, codecs",
                confidence=0.88,
            ),
        ),
    ),
    Kind(
        "batch_of_one",
        "A batch has one row, of which a batch norm can't take a variance: often the last batch.",
        ("Leave out the last, smaller batch (drop_last=True), or train with more rows a batch.",),
        (
            Wording(
                r"\bExpected more than 1 (?:value per channel|spatial element) when training",
                "ValueError: Expected more than 1 value per channel when training, got input size "
                "torch.Size([1, 8])",
                "PyTorch, torch/nn/functional.py",
            ),
        ),
    ),
    Kind(
        "values_not_finite",
        "A function gets values that are NaN, infinite or outside the range that it takes: the "
        "model's output diverged, or the data has such values.",
        (
            "Check the data for NaN first (isnan(x).any()), then the losses before: where "
            "they grew, use a lower learning rate or clip gradients.",
            "A loss of probabilities needs a sigmoid before it (or its form with logits).",
        ),
        (
            Wording(
                r"\bInput (?:[Xy] )?contains (?:NaN|infinity)"
                r"|\ball elements of (?:input|target) should be between 0 and 1"
                r"|\binput_val >= zero && input_val <= one"
                r"|\bExpected parameter \w+ .{1,200} to satisfy the constraint"
                r"|\barray must not contain infs or NaNs",
                "ValueError: Input X contains NaN.",
                "scikit-learn, utils/validation.py; PyTorch, Loss.cu, torch/distributions",
                confidence=0.85,
            ),
        ),
        instead_of=("cuda_illegal_memory", "index_out_of_range"),
    ),
    Kind(
        "database_locked",
        "A database of SQLite is locked: several processes write it, or it is on NFS.",
        (
            "Give parallel workers a server (PostgreSQL, MySQL) or a journal file instead of "
            "SQLite, or put its file on a local disk.",
        ),
        (
            Wording(
                r"\bsqlite3\.OperationalError\)?:? database is locked",
                "sqlite3.OperationalError: database is locked",
                "SQLite; Optuna, storages/_rdb; MLflow",
            ),
        ),
    ),
    Kind(
        "shared_memory_stale",
        "Names of shared memory are left from an earlier run of streaming that was killed.",
        (
            "Call streaming.base.util.clean_stale_shared_memory() before the data set is made, "
            "and end what still runs of the earlier one.",
        ),
        (
            Wording(
                r"\bFileExistsError: \[Errno 17\] File exists: '/\d{6}_\w+'",
                "FileExistsError: [Errno 17] File exists: '/000001_barrier'",
                "MosaicML streaming, base/shared/prefix.py",
            ),
        ),
    ),
    Kind(
        "shards_not_split",
        "Each machine would read the same shards: the data has no rule that splits them by node.",
        ("Give WebDataset nodesplitter=wds.split_by_node, or resampled=True.",),
        (
            Wording(
                r"\bneed to add an explicit nodesplitter",
                "ValueError: you need to add an explicit nodesplitter to your input pipeline",
                "webdataset, shardlists.py",
            ),
        ),
    ),
    Kind(
        "storage_throttled",
        "The object storage refuses requests for a while: too many were made at once.",
        (
            "Read with fewer workers or larger files, and let the client retry (adaptive mode); "
            "or copy the data to the machine first.",
        ),
        (
            Wording(
                r"\bAn error occurred \((?:SlowDown|503|RequestLimitExceeded|ThrottlingException)\)"
                r"|\bPlease reduce your request rate\b|\brateLimitExceeded\b",
                "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the "
                "GetObject operation: Please reduce your request rate.",
                "AWS, S3's error responses; Google Cloud Storage",
                unless=r"(?i)retrying|will retry",
            ),
        ),
    ),
    Kind(
        "data_too_short",
        "The data has fewer tokens than one sequence (a block) of the training needs.",
        ("Use more data for this split, or a shorter block (sequence length).",),
        (
            Wording(
                r"\brandom_ expects 'from' to be less than 'to', but got from=0"
                r"|\brandint.{0,40}\bhigh <= 0",
                "RuntimeError: random_ expects 'from' to be less than 'to', but got from=0 "
                ">= to=-9",
                "PyTorch, torch/_meta_registrations.py; nanoGPT, train.py",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "settings_exclusive",
        "Two settings exclude each other, or one needs the other; the message names both.",
        ("Remove one of the two, or set what the other needs, as the message says.",),
        (
            Wording(
                r"\bYou passed both\b(?:(?: an?)? \W?(?P<setting>\w{1,60})\W? and(?: an?)?"
                r" \W?(?P<setting_other>\w{1,60}))?|\bare mutually exclusive\b"
                r"|\bcannot be (?:used|set) together\b"
                r"|\b(?:option|argument) could only be specified (?:in|with|when)\b"
                r"|\bYou (?:can't|cannot) (?:pass|set|specify|use) both\b"
                r"|\bonly one of .{1,80} (?:can|may|should|must) be (?:set|passed|given)\b",
                "ValueError: You passed both a `a_model` and a `b_config`.",
                "TRL, trainers; PyTorch, torch/utils/data/dataloader.py",
                unless=r"(?i)warn|deprecat|ignor",
                confidence=0.85,
            ),
        ),
        instead_of=("framework_settings", "arguments_refused"),
    ),
    Kind(
        "git_refuses_owner",
        "git refuses a repository that belongs to another user, as in a container with a mounted "
        "folder.",
        ("Run `git config --global --add safe.directory FOLDER` first, or as the folder's owner.",),
        (
            Wording(
                r"\bdetected dubious ownership in repository at",
                "fatal: detected dubious ownership in repository at '/a'",
                "git, setup.c",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "file_missing",
        "A file or folder that the program opens does not exist on this machine.",
        (
            "Check the path as seen from the run's folder on the host, and whether something "
            "removed it (a purge of scratch space, keeping only the newest checkpoints).",
        ),
        (
            Wording(
                r"\bFileNotFoundError: \[Errno 2\] No such file or directory: '",
                "Traceback (most recent call last):\n"
                "FileNotFoundError: [Errno 2] No such file or directory: '/a/b.cfg'",
                "Python",
                after=r"Traceback \(most recent call last\)",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "generation_config_invalid",
        "The model's generation_config contradicts itself (as temperature without do_sample), so "
        "the model can't be saved.",
        (
            "Set model.generation_config.do_sample = True, or temperature and top_p to None, "
            "before training; no checkpoint was written.",
        ),
        (
            Wording(
                r"\b[Gg]eneration config instance is invalid"
                r"|\bGenerationConfig is invalid",
                "ValueError: The generation config instance is invalid",
                "transformers, generation/configuration_utils.py",
            ),
        ),
    ),
    Kind(
        "tokens_untrained",
        "The data uses special tokens (of a chat template) that the base model never learned.",
        (
            "Train the instruct model, or train embed_tokens and lm_head as well (target modules, "
            "modules_to_save), or take a template of ordinary tokens.",
        ),
        (
            Wording(
                r"\bUntrained tokens\b.{0,200}\bfound, but embed_tokens",
                "ValueError: Unsloth: Untrained tokens of [[5]] found, but embed_tokens & lm_head "
                "not trainable",
                "Unsloth, unsloth/tokenizer_utils.py",
            ),
        ),
    ),
    Kind(
        "template_unknown",
        "The program has no chat template of the name that the settings give.",
        (
            "Take a name from its list (LLaMA-Factory: data/template.py; Qwen2.5 has `qwen`), or "
            "a newer version of the program.",
        ),
        (
            Wording(
                r"\bValueError: Template \S{1,80} does not exist",
                "ValueError: Template abc does not exist.",
                "LLaMA-Factory, data/template.py",
            ),
        ),
    ),
)

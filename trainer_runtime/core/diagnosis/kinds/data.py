"""Data, tokenizers and labels that a training can't use."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "labels_masked",
        "All labels are masked (-100), so there is nothing to learn from.",
        (
            "The markers that separate instruction and answer are not those of the chat "
            "template: compare them with one formatted example.",
            "Answers cut off by the longest sequence leave nothing either.",
        ),
        (
            Wording(
                r"\b[Aa]ll labels in your dataset are -100"
                r"|\bThis instance will be ignored in loss calculation",
                "ZeroDivisionError: Unsloth: All labels in your dataset are -100. Training losses "
                "will be all 0.",
                "unsloth_zoo, training_utils.py; TRL, data collators",
            ),
            Wording(
                r"\bCould not find (?:response|instruction) key .{1,200} in the following instance",
                "UserWarning: Could not find response key `### Answer:` in the following "
                "instance: hello",
                "TRL, trainer/utils.py",
                confidence=0.7,
            ),
        ),
    ),
    Kind(
        "columns_of_mixed_types",
        "A column of the data has values of several types, or its files have different columns.",
        (
            "Make the column one type in all rows (a list stays a list, a number a number), or "
            "load the files one by one to find the first that differs.",
        ),
        (
            Wording(
                r"\bJSON parse error: Column\(.{1,120}\) changed from \w+ to \w+"
                r"|\bcannot mix (?:list and non-list|struct and non-struct|\w+ and \w+), non-null"
                r"|\bCouldn't cast array of type"
                r"|\bCouldn't cast .{0,400}because column names don't match"
                r"|\bArrowInvalid: Could not convert .{0,200} with type \w+: tried to convert to"
                r"|\bArrowTypeError: Expected \w+",
                "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/a) changed from string to "
                "number in row 7",
                "Apache Arrow, cpp/src/arrow/json/parser.cc",
            ),
        ),
        instead_of=("data_malformed", "dataset_columns"),
    ),
    Kind(
        "data_empty",
        "The data set is empty: nothing was loaded, or a filter removed every row.",
        (
            "Count the rows after each step of preparation; check path, split and filters.",
            "Where every row was dropped, the columns or their format don't fit the settings (in "
            "LLaMA-Factory those of dataset_info.json).",
        ),
        (
            Wording(
                r"\bnum_samples should be a positive integer value, but got num_samples=0"
                r"|\bDataLoader with a length of zero|\bThe dataset is empty\b"
                r"|\bdivision by zero.{0,60}len_dataloader"
                r"|\bcannot mmap an empty file"
                r"|\bEmptyDatasetError\b|\bInstruction \"train\" corresponds to no data",
                "ValueError: num_samples should be a positive integer value, but got num_samples=0",
                "PyTorch, torch/utils/data/sampler.py",
            ),
            Wording(
                r"\b\w*Error: .{0,120}\b(?:[Nn]o|[Ff]ound 0|find|find any) (?:\w+ )?(?:samples"
                r"|examples|rows|sequences|records|documents)\b",
                "RuntimeError: Cannot find valid samples, check `data/README.md` for the format.",
                "LLaMA-Factory, data/loader.py",
                unless=r"AssertionError",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "data_file_missing",
        "A file of the data is not where the program searches for it.",
        (
            "Check the path as seen from the run's folder on the host; data travels with the spec "
            "only where it is named there.",
            "Megatron's is a prefix, without the .bin or .idx that preprocess_data.py wrote.",
        ),
        (
            Wording(
                r"\bFileNotFoundError: (?:Unable to find '|Couldn't find (?:a dataset script|any "
                r"data file) at|.{0,80}No such file or directory: "
                r"'[^']{0,300}\.(?:jsonl?|csv|parquet|txt|bin|arrow|npy|tsv|zst)(?:\.gz)?')"
                r"|\bidx and \.bin files cannot be found at the path prefix",
                "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'",
                "Python; datasets, load.py",
                unless=r"/(?:trainer_state|config|tokenizer\w*|\w*_config)\.json|\b\w{1,80}_rank\w{0,40}\.bin"
                r"|pytorch_model|optimizer\.bin|training_args",
                not_phases=(Phase.CHECKPOINT, Phase.WEIGHTS, Phase.SAVING),
            ),
        ),
        instead_of=("data_empty",),
        confidence=0.85,
    ),
    Kind(
        "labels_unpadded",
        "Rows of unequal length were put into one batch without padding, often the labels.",
        (
            "Use a collator that pads labels too (DataCollatorForSeq2Seq), or truncate and pad "
            "when tokenizing.",
        ),
        (
            Wording(
                r"\bUnable to create tensor, you should probably activate truncation and/or padding"
                r"|\bexpected sequence of length \d+ at dim \d+ \(got \d+\)"
                r"|\btoo many dimensions 'str'"
                r"|\bThe requested array has an inhomogeneous shape",
                "ValueError: Unable to create tensor, you should probably activate truncation "
                "and/or padding with 'padding=True' 'truncation=True'",
                "transformers, tokenization_utils_base.py",
            ),
            Wording(
                r"\bstack expects each tensor to be equal size",
                "RuntimeError: stack expects each tensor to be equal size, but got [512] at entry "
                "0 and [498] at entry 1",
                "PyTorch, torch/utils/data/_utils/collate.py",
            ),
        ),
        instead_of=("pad_token_missing", "shape_mismatch"),
    ),
    Kind(
        "encoding_not_utf8",
        "A text file is not UTF-8.",
        ("Convert it: `iconv -f latin1 -t utf-8 FILE`; or name its encoding when opening it.",),
        (
            Wording(
                r"\bUnicodeDecodeError: 'utf-8' codec can't decode byte",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 10: invalid "
                "continuation byte",
                "Python",
                # What a file of another format begins with.
                unless=r"byte 0x(?:8b|b5) in position 1\b"
                r"|byte 0x(?:80|89|93|fd|fe|ff) in position 0\b",
                not_phases=(Phase.CHECKPOINT, Phase.WEIGHTS),
                confidence=0.85,
            ),
        ),
    ),
    Kind(
        "file_compressed",
        "The file is compressed (gzip, zstd or xz, by its first bytes), and is read as text.",
        (
            "Decompress it (gunzip, zstd -d, unxz), or open it as what it is (gzip.open); a name "
            "that ends in .gz lets most libraries do so.",
        ),
        (
            Wording(
                r"\bcodec can't decode byte 0x(?:8b|b5) in position 1\b"
                r"|\bcodec can't decode byte 0xfd in position 0\b",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xb5 in position 1: invalid "
                "start byte",
                "Python; RFC 1952 (gzip), RFC 8878 (zstd)",
            ),
        ),
    ),
    Kind(
        "file_utf16",
        "The text file is UTF-16, as Windows programs save it, or is not text at all.",
        ("Convert it: `iconv -f utf-16 -t utf-8 FILE`; or name its encoding when opening it.",),
        (
            Wording(
                r"\bcodec can't decode byte 0xf[ef] in position 0\b",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid "
                "start byte",
                "Python; the Unicode byte order mark",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "file_binary",
        "A binary file is read as text: by its first byte a pickle or torch file, a NumPy array, "
        "or an image or HDF5 file.",
        ("Load it by what wrote it (torch.load, pickle, np.load), or name the right file.",),
        (
            Wording(
                r"\bcodec can't decode byte 0x(?:80|89|93) in position 0\b",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x93 in position 0: invalid "
                "start byte",
                "Python; pickle protocol 2, NumPy's format, PNG, HDF5",
                not_phases=(Phase.CHECKPOINT, Phase.WEIGHTS),
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "text_not_string",
        "A text of the data is not a string: an empty cell (None, NaN), a number or a list.",
        (
            "Filter out or fill the rows without text before tokenizing (an empty cell of a CSV "
            "file is read as NaN); convert numbers by str().",
            "Check that it is the text column that is tokenized, not a list of columns.",
        ),
        (
            Wording(
                r"\bText(?:Encode)?Input(?:Sequence)? must be\b"
                r"|\btext input must be of type .str. \(single example\)"
                r"|\bInput (?:None|nan) is not valid\. Should be a string"
                r"|\bexpected string or bytes-like object, got '(?:NoneType|float)'",
                "TypeError: TextInputSequence must be str",
                "tokenizers, bindings/python/src/tokenizer.rs; transformers, "
                "tokenization_utils_base.py; Python, re",
            ),
        ),
    ),
    Kind(
        "negative_ids_decoded",
        "Token ids to decode are negative: padded labels or predictions hold -100.",
        (
            "Replace -100 first, in labels and predictions: np.where(ids != -100, ids, "
            "tokenizer.pad_token_id).",
        ),
        (
            Wording(
                r"\bOverflowError: (?:out of range integral type conversion attempted"
                r"|can't convert negative int to unsigned)",
                '  File "t.py", line 9, in compute_metrics\n'
                "    text = tokenizer.batch_decode(labels)\n"
                "OverflowError: out of range integral type conversion attempted",
                "tokenizers, bindings/python/src/tokenizer.rs",
                after=r"decode\(",
            ),
        ),
        confidence=0.88,
    ),
    Kind(
        "sequence_too_long",
        "A sequence is longer than the model's positions.",
        (
            "Truncate to the model's context, or filter out the samples that are longer (of "
            "speech: whose transcripts are).",
        ),
        (
            Wording(
                r"\bCannot forward sequence of length \d+, block size is only \d+"
                r"|\bCannot attend to \d+, block size is only"
                r"|\bThe decoder prompt \(length \d+\) is longer than the maximum model length"
                r"|\bsequence length:? \d+ (?:cannot exceed|exceeds|is (?:long|larg|great)er than)"
                r"|\bof sample #\d+ is invalid .{0,60}since max_positions",
                "AssertionError: Cannot forward sequence of length 2048, block size is only 1024",
                "nanoGPT, model.py; LitGPT, litgpt/model.py; transformers, modeling_whisper.py; "
                "fairseq, tasks/fairseq_task.py",
                unless=r"(?i)warn|Token indices|will be (?:truncated|skipped)",
            ),
            Wording(
                r"\bThe expanded size of the tensor \(\d+\) must match the existing size \(\d+\)"
                r"|\bThe size of tensor a \(\d+\) must match the size of tensor b \(\d+\)",
                "    ids = buffered_token_type_ids.expand(batch_size, seq_length)\n"
                "RuntimeError: The expanded size of the tensor (824) must match the existing size "
                "(512) at non-singleton dimension 1.",
                "transformers, modeling_bert.py",
                after=r"(?:buffered_token_type_ids\w*\.expand\(|\+ ?(?:self\.)?pos\w*_emb\w*"
                r"|\+= ?position_embeddings)[^\n]*\n(?:[^\n]{0,8}[~^ ]+\n)?[^\n]*$",
                confidence=0.85,
            ),
        ),
        instead_of=("shape_mismatch",),
    ),
    Kind(
        "worker_start",
        "What is handed to worker processes can't be pickled, so they could not start.",
        (
            "Move functions and classes to the top level of a module, or use num_workers=0 (or "
            'num_proc=1); guard the program by `if __name__ == "__main__"`.',
        ),
        (
            Wording(
                r"\b(?:Can't|cannot) (?:pickle|get) (?:local object|'?_?\w[\w.]*'? object|<)"
                r"|\bAttributeError: Can't get attribute '\w+' on <module '__main__'"
                r"|\bcannot pickle '[\w._]+' object"
                r"|\bAn attempt has been made to start a new process before the\b",
                "AttributeError: Can't pickle local object 'main.<locals>.collate'",
                "Python, multiprocessing/reduction.py",
            ),
            Wording(
                r"\bEOFError: Ran out of input",
                'File "/usr/lib/python3.11/multiprocessing/spawn.py", line 131, in _main\n'
                "EOFError: Ran out of input",
                "Python, multiprocessing/spawn.py",
                after=r"multiprocessing/spawn\.py|Can't pickle|spawn_main",
            ),
        ),
        instead_of=("checkpoint_corrupt", "dataloader_crash"),
    ),
    Kind(
        "cuda_in_fork",
        "CUDA was used in a forked worker process.",
        ("Move tensors to the GPU in the main process, or start workers by spawn.",),
        (
            Wording(
                r"\bCannot re-initialize CUDA in forked subprocess",
                "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                "multiprocessing, you must use the 'spawn' start method",
                "PyTorch, torch/cuda/__init__.py",
            ),
        ),
        instead_of=("dataloader_crash",),
    ),
    Kind(
        "dataset_not_registered",
        "LLaMA-Factory's list of data sets (dataset_info.json) does not have this name.",
        (
            "Add an entry of that name to dataset_info.json in dataset_dir, or correct `dataset:`; "
            "dataset_dir is relative to where the program starts.",
        ),
        (
            Wording(
                r"\bUndefined dataset \S{1,120} in \S+\.json",
                "ValueError: Undefined dataset mine in dataset_info.json.",
                "LLaMA-Factory, data/parser.py",
            ),
        ),
    ),
    Kind(
        "prompt_too_long",
        "A prompt has more tokens than the longest that is allowed, and longer ones are an error.",
        (
            "Leave them out (verl: data.filter_overlong_prompts=True), raise "
            "data.max_prompt_length, or cut them (data.truncation=left).",
        ),
        (
            Wording(
                r"\bsequence_length=\d+ is larger than max_length=\d+"
                r"|\bPrompt length \d+ is longer than \d+",
                "NotImplementedError: sequence_length=1081 is larger than max_length=1024",
                "verl, utils/torch_functional.py",
            ),
        ),
        instead_of=("operation_not_implemented",),
    ),
    Kind(
        "map_lengths_differ",
        "The function of a batched map returns another number of rows than it was given, while "
        "other columns keep theirs: the columns no longer match in length.",
        (
            "Remove the old columns (remove_columns=dataset.column_names), or return every column "
            "with the same number of rows.",
        ),
        (
            Wording(
                r"\bColumn \d+ named \S{1,80} expected length \d+ but got length \d+",
                "pyarrow.lib.ArrowInvalid: Column 1 named ids expected length 1000 but got length "
                "599",
                "datasets, arrow_writer.py; pyarrow",
            ),
        ),
        instead_of=("data_malformed",),
    ),
    Kind(
        "token_type_ids_missing",
        "The model needs token_type_ids in each batch while it is trained, and they are missing.",
        (
            "Keep the column (remove_unused_columns: false) and let the collator pass it; for text "
            "alone zeros do, or load the model's class for text only.",
        ),
        (
            Wording(
                r"\btoken_type_ids\b.{0,12}(?:are|is) required as a model input when training",
                "ValueError: `token_type_ids` are required as a model input when training",
                "transformers, models/gemma3/modeling_gemma3.py",
            ),
        ),
    ),
)

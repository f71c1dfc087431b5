"""Errors of the training frameworks before training: data, settings, package versions."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, signature

_PACKAGES = (
    r"(?:transformers|trl|peft|accelerate|datasets|deepspeed|litgpt|lightning|bitsandbytes"
    r"|tokenizers|huggingface_hub|sentencepiece|tensorboard|wandb|mlflow|neptune|clearml|comet_ml)"
)
_WORDS_OF_PACKAGES = (
    *("transformers", "trl", "peft", "accelerate", "datasets", "deepspeed", "litgpt", "lightning"),
    *("bitsandbytes", "tokenizers", "huggingface", "sentencepiece", "tensorboard", "wandb"),
    *("mlflow", "neptune", "clearml", "comet"),
)
_COLUMNS = (
    *(
        "input_ids",
        "labels",
        "attention_mask",
        "text",
        "question",
        "answer",
        "instruction",
        "input",
    ),
    *("output", "conversations", "content", "query", "response", "image", "images", "sentence"),
)
# Frameworks also warn about optional packages.
_WARNED = r"\[?WARN(?:ING)?\b|UserWarning|FutureWarning|will be ignored|[Ss]kipping|fall\w* back"


def _with_each(words: str) -> str:
    """Keyword groups: these words with each package's name."""
    return "|".join(f"{words}+{package}" for package in _WORDS_OF_PACKAGES)


SIGNATURES = (
    signature(
        "dataset_columns/refused",
        "unexpected+input+keys|column+name+not+dataset"
        "|column+names+not+dataset|datasetgenerationcasterror|files+must+same+columns"
        "|expected+find+columns|expected+find+column",
        r"(?:KeyError: [\"'])?Unexpected input keys in examples: \["
        r"|(?:Original c|C)olumn names? .{1,400} not in the dataset\b"
        r"|DatasetGenerationCastError"
        r"|All the data files must have the same columns"
        r"|Expected to find .{1,200}\bcolumns?\b",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "dataset_columns/key",
        "keyerror+prompt|keyerror+chosen|keyerror+rejected|keyerror+completion|keyerror+messages"
        "|keyerror+label",
        r"KeyError: '(?:prompt|chosen|rejected|completion|messages|label)'\s*$",
        confidence=0.85,
    ),
    signature(
        "dataset_columns/column",
        "|".join(f"keyerror+{name.replace('_', '+')}" for name in _COLUMNS),
        rf"KeyError: '(?:{'|'.join(_COLUMNS)})'\s*$",
        confidence=0.7,
    ),
    signature(
        "lora_targets_missing/peft",
        "target+modules+found+base|modules+targeted+adaptation|specify+target+modules+peft",
        r"Target modules .{1,400} not found in the base model"
        r"|No modules were targeted for adaptation"
        r"|Please specify `target_(?:modules|parameters)`",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "framework_settings/refused",
        "correct+following+deepspeed+config|batch+related+parameters+equal"
        "|generation+batch+size+divisible|setup+support+bf+gpu|global+batch+size+divisible",
        r"Please correct the following DeepSpeed config values that mismatch"
        r"|Check batch related parameters\. train_batch_size is not equal"
        r"|generation_batch_size \(\d+\) must be divisible by"
        r"|The global (?:train|eval) batch size \(.{1,80}\) must be .{0,20}divisible"
        r"|Your setup doesn't support bf16/gpu",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "tracker_no_credentials/key",
        "api+key+configured|wandb+login+usageerror|wandb+key+invalid|wandb+key+verification"
        "|api+key+characters+yours|neptunemissingapitokenexception|neptuneinvalidapitokenexception"
        "|neptune+api+token+find|comet+requires+api+key|given+api+key+invalid"
        "|clearml+configured+machine",
        r"No API key configured|api_key not configured \(no-tty\)"
        r"|\bUsageError: .{0,200}wandb[ .]login"
        r"|wandb[\w.]*AuthenticationError: .{0,40}API key"
        r"|API key must (?:be|have) [^\n]{0,20}characters long, yours was"
        r"|Neptune(?:Missing|Invalid)ApiTokenException|Neptune client couldn't find your API token"
        r"|Comet(?:\.ml|\.com)? requires an API key|The given API key .{0,80}is invalid"
        r"|ClearML is not configured on this machine",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "package_missing/module",
        f"{_with_each('modulenotfounderror+named')}|{_with_each('package+metadata+found')}"
        "|deepspeed+installed+run",
        rf"ModuleNotFoundError: No module named '(?P<package>{_PACKAGES})'"
        rf"|No package metadata was found for (?:The ')?(?P<package_other>{_PACKAGES})\b"
        r"|(?P<package_imported>DeepSpeed) is not installed => run",
        unless=_WARNED,
        confidence=0.9,
    ),
    signature(
        "package_missing/other",
        "modulenotfounderror+named",
        rf"ModuleNotFoundError: No module named '(?!{_PACKAGES}\b|triton\b|flash_attn)"
        r"(?P<package>\w+)[\w.]*'",
        unless=_WARNED,
        retryable=True,
        confidence=0.85,
    ),
    signature(
        "arguments_refused/parser",
        "error+unrecognized+arguments|error+arguments+required|error+argument+invalid"
        "|error+argument+expected|error+parser+key|error+key+accepted|arguments+used+hfargumentparser"
        "|such+option|missing+option|unknown+command+line+flag|could+override|key+struct",
        r"[\w.\-/]{1,200}: error: (?:unrecognized arguments: "
        r"|the following arguments are required: "
        r"|argument \S+: (?:invalid|expected|not allowed|ignored))"
        r"|error: (?:Parser key \"|Key '[^']+' is required|Option '[^']+' is not accepted"
        r"|Unrecognized arguments: )"
        r"|Some specified arguments are not used by the HfArgumentParser"
        r"|Error: (?:No such option: |Missing option ')"
        r"|FATAL Flags parsing error:|Unknown command line flag '"
        r"|Could not override '|Key '[^']+' is not in struct",
        head=Head.WORDS,
        unless=_WARNED,
        confidence=0.9,
    ),
    signature(
        "package_missing/flash_attn",
        "flash+attn+named|flashattention+toggled|flash+attn+installed|flash+attention+installed",
        r"No module named '(?P<package>flash_attn)'"
        r"|(?P<package_other>FlashAttention2) has been toggled on, but it cannot be used"
        r"|the package (?P<package_imported>flash_attn) seems to be not installed",
        head=Head.WORDS,
        unless=_WARNED,
        confidence=0.9,
    ),
    signature(
        "chat_template_missing/tokenizer",
        "chat+template+set|chat+template+tokenizer",
        r"tokenizer\.chat_template is not set\b"
        r"|does not have a (?:default )?chat template",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "pad_token_missing/tokenizer",
        "pad+token+tokenizer|padding+token+batch|padding+token+asking",
        r"Asking to pad but the tokenizer does not have a padding token"
        r"|Cannot handle batch sizes > 1 if no padding token is defined",
        head=Head.WORDS,
        unless=_WARNED,
    ),
    signature(
        "data_malformed/json",
        "jsondecodeerror|arrowinvalid+json|json+parse+error",
        r"JSONDecodeError: (?:Expecting|Extra data|Invalid|Unterminated)"
        r"|ArrowInvalid: JSON parse error",
        head=Head.WORDS,
        unless=_WARNED,
        retryable=True,
        confidence=0.85,
    ),
    signature(
        "package_mismatch/version",
        f"{_with_each('cannot+import+name')}|operator+torchvision+exist"
        "|required+normal+functioning+found|init+unexpected+keyword+argument",
        rf"cannot import name '\w+' from '(?P<package>{_PACKAGES})[\w.]*'"
        r"|operator (?P<package_other>torchvision)::\w+ does not exist"
        r"|(?:\b(?P<package_imported>[\w-]{1,60})(?P<bound>[<>=!~][\d.<>=!~,]{1,80}) )?"
        r"is required for a normal functioning of this module, but found"
        r"(?: [\w-]{1,60}==(?P<version>[\d.]{1,24})(?<!\.))?"
        r"|\b(?:\w+Config|\w*TrainingArguments|\w*Trainer)\.__init__\(\) got an unexpected keyword",
        head=Head.WORDS,
        unless=_WARNED,
        confidence=0.9,
    ),
)

"""Refuses models and tokenizers that can't be used, or that don't match."""

from __future__ import annotations

import re

from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.model import BYTE_VOCABULARY
from trainmaster.plan.decisions.objective import refuse_without_special_tokens
from trainmaster.plan.decisions.tokenizer import BYTE, chosen_tokenizer
from trainmaster.plan.decisions.trainable_models import refuse_untrainable
from trainmaster.plan.facts import FolderFacts, ModelFacts, TokenizerFacts
from trainmaster.plan.frameworks import FRAMEWORKS, framework_of
from trainmaster.plan.spec import TrainingSpec

# Matrices that adapters don't go with: embeddings and the head that they are tied to.
_NO_TARGET = re.compile(r"embed|^w[tp]e$|^lm_head$")
_FIXES = {
    "MODEL_NOT_FOUND": "Give a folder as `save_pretrained` or LitGPT writes it; a folder of the "
    "host as host:/path.",
    "MODEL_UNUSABLE": "Give a folder with config.json and weights (*.safetensors), or with "
    "LitGPT's model_config.yaml and lit_model.pth; an adapter is merged into its model first.",
    "MODEL_DAMAGED": "Copy or download it again: compare the sizes of its files with the source's.",
    "TOKENIZER_UNUSABLE": "Name the folder or hub name of one by data.tokenizer; "
    "`AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)` writes tokenizer.json. A model "
    "that was trained on bytes takes byte.",
}


def check_inputs(
    spec: TrainingSpec, model: ModelFacts | None, tokenizer: TokenizerFacts | None
) -> None:
    """Check that the spec's model and tokenizer exist, are complete and match.

    Raises:
        PlanError: MODEL_NOT_FOUND, MODEL_UNUSABLE, MODEL_DAMAGED, TOKENIZER_UNUSABLE,
            VOCABULARY_TOO_SMALL, INVALID_VALUE.
    """
    if model is not None:
        _refuse_problem(model, "model.path" if spec.model.path else "model.hub")
        _refuse_other_layout(spec, model)
        refuse_untrainable(spec, model)
    if tokenizer is not None:
        _refuse_problem(tokenizer, "data.tokenizer")
    refuse_without_special_tokens(spec, tokenizer)
    _refuse_unknown_targets(spec, model)
    _refuse_byte_for_weights(spec, model)
    _refuse_small_vocabulary(spec, model, tokenizer)
    _refuse_here(spec, tokenizer)


def _refuse_problem(folder: FolderFacts, field: str) -> None:
    if folder.problem is None:
        return
    code = folder.code or "MODEL_UNUSABLE"
    named = folder.hub or folder.path
    raise PlanError(
        code, f"`{field}` is {named!r}: {folder.problem}.", _FIXES.get(code, ""), field=field
    )


def _refuse_other_layout(spec: TrainingSpec, model: ModelFacts) -> None:
    if model.kind in framework_of(spec).layouts:
        return
    able = {name: record for name, record in FRAMEWORKS.items() if model.kind in record.layouts}
    ways = [f"`{record.layouts[model.kind]}`" for record in able.values()]
    raise PlanError(
        "MODEL_UNUSABLE",
        f"`model.path` is {model.path!r}, a model in the layout of {model.kind}, which "
        f"{spec.framework} doesn't read.",
        f"Convert it ({' or '.join(ways)}), or set framework to {' or '.join(able)}.",
        field="model.path",
    )


def _refuse_unknown_targets(spec: TrainingSpec, model: ModelFacts | None) -> None:
    if spec.adapter is None or spec.adapter.targets == "auto":
        return
    there = list(framework_of(spec).adapter_matrices or ())
    if there:
        unknown = [target for target in spec.adapter.targets if target not in there]
    else:
        matrices = () if model is None else model.matrices
        there = [name for name in matrices if not _NO_TARGET.search(name)]
        unknown = [
            target
            for target in spec.adapter.targets
            if matrices and target.rpartition(".")[2] not in matrices
        ]
    if unknown:
        raise PlanError(
            "INVALID_VALUE",
            f"`adapter.targets` names {unknown[0]!r}, which the model has not. "
            f"It has {', '.join(there)}.",
            "Name some of these, or set adapter.targets to auto.",
            field="adapter.targets",
        )


def _refuse_byte_for_weights(spec: TrainingSpec, model: ModelFacts | None) -> None:
    """Where the folder brings no tokenizer, it may have been trained on bytes."""
    if model is None or chosen_tokenizer(spec) != BYTE:
        return
    if model.has_tokenizer:
        raise PlanError(
            "INVALID_VALUE",
            "`data.tokenizer` is byte, but the weights were trained with a tokenizer of their own; "
            "to them bytes would mean nothing.",
            "Set data.tokenizer to auto, which is the model's own.",
            field="data.tokenizer",
        )
    if model.vocab_size is not None and model.vocab_size < BYTE_VOCABULARY:
        raise PlanError(
            "VOCABULARY_TOO_SMALL",
            f"Bytes take {BYTE_VOCABULARY} tokens, but the model's embedding has "
            f"{model.vocab_size:,} rows.",
            "Set data.tokenizer to the one that the model was trained with.",
            field="data.tokenizer",
        )


def _refuse_small_vocabulary(
    spec: TrainingSpec, model: ModelFacts | None, tokenizer: TokenizerFacts | None
) -> None:
    if model is None or tokenizer is None or spec.model.extend_vocab:
        return
    rows, tokens = model.vocab_size, tokenizer.vocab_size
    if rows is not None and tokens is not None and tokens > rows:
        raise PlanError(
            "VOCABULARY_TOO_SMALL",
            f"The tokenizer has {tokens:,} tokens, but the model's embedding {rows:,} rows.",
            "Set data.tokenizer to auto, which is the model's own, or model.extend_vocab to true, "
            "which adds rows for the others (hf, and trl without an adapter).",
            field="data.tokenizer",
        )


def _refuse_here(spec: TrainingSpec, tokenizer: TokenizerFacts | None) -> None:
    """This machine cuts with what Python itself has."""
    if spec.data.prepare != "here":
        return
    formats = sorted(spec.data.formats - {"text", "jsonl"})
    if tokenizer is None and not formats:
        return
    what = "another tokenizer" if tokenizer is not None else f"format {formats[0]}"
    raise PlanError(
        "INVALID_VALUE",
        f"`data.prepare` is here, but {what} takes packages of the environment that trains.",
        "Set data.prepare to box, or to auto.",
        field="data.prepare",
    )

"""Chooses the tokenizer."""

from __future__ import annotations

from trainer_runtime.core.config.tokenizer_training import TokenizerTraining
from trainer_runtime.core.files.tiktoken_encodings import ENCODINGS, PACKAGE, encoding_name
from trainmaster.plan.facts import TokenizerFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.spec import TrainingSpec

BYTE, NONE = "byte", "none"
TRAINED = "trained on the sources"
# Of weights that the spec does not name.
OWN = "the model's own"


def chosen_tokenizer(spec: TrainingSpec) -> str:
    """`byte`, `none`, `TRAINED`, or the folder, hub name or `tiktoken:NAME` that the spec gives.

    auto is the tokenizer of the existing weights, since their embedding fits no other one; none for
    ready tokens of a vocabulary whose size is given; byte for another new model.
    """
    if spec.data.trained_tokenizer is not None or not isinstance(spec.data.tokenizer, str):
        return TRAINED
    if spec.data.tokenizer != "auto":
        return spec.data.tokenizer
    if framework_of(spec).trains_without_tokenizer and _is_ready(spec):
        return NONE
    return spec.model.path or spec.model.hub or (OWN if spec.lacks_weights else BYTE)


def declared_tokenizer(spec: TrainingSpec) -> TokenizerFacts | None:
    """The facts of a tokenizer that is known without reading its files: none, one that the host
    trains, whose size is declared, or an encoding of tiktoken. None for any other."""
    chosen, trained = chosen_tokenizer(spec), spec.data.trained_tokenizer
    if chosen == NONE:
        sizes = spec.model
        digest = f"{NONE}-{sizes.vocab_size or sizes.preset}"
        return TokenizerFacts(path=NONE, vocab_size=sizes.vocab_size, digest=digest)
    if trained is not None and trained.size is not None:
        training = TokenizerTraining(trained.train, trained.size)
        return TokenizerFacts(
            training=training,
            digest=training.digest,
            vocab_size=training.size,
            bytes_per_token=training.bytes_per_token,
            chat_template=False,
        )
    name = encoding_name(chosen)
    if name is None:
        return None
    encoding = ENCODINGS[name]
    return TokenizerFacts(
        sent_as=f"tiktoken-{name}",
        tiktoken=name,
        digest=f"tiktoken-{name}",
        vocab_size=encoding.vocab_size,
        packages=(PACKAGE,) if encoding.is_shipped else (),
        chat_template=False,
    )


def _is_ready(spec: TrainingSpec) -> bool:
    size = spec.model.vocab_size or spec.model.preset
    return size is not None and spec.data.formats == {"tokens"}

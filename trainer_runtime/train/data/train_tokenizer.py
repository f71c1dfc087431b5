"""Trains a tokenizer on the beginning of every file of the training sources.

The same files give the same tokens: texts come in one order, what counts them is ordered before it
decides, and the ids of special tokens are those of `core.config.tokenizer_training`. Held-out files
are not read.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer_runtime.core.config.tokenizer_training import FOLDER, KINDS, TokenizerTraining
from trainer_runtime.core.files.tokenizer_folder import JSON_NAME, SETTINGS_NAME
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.protocol.figures import share_text, size_text
from trainer_runtime.train.attempt.config import ConfigError, DataConfig, SourceConfig
from trainer_runtime.train.data.documents import pieces

SAMPLE_BYTES = 64 << 20
# The trainers take about 100 times the bytes of the words, each counted once.
WORD_BYTES = 12 << 20
_ANY_LENGTH = 1_000_000_000
# A score of the unigram trainer's for a letter that no text had lies so little above the lowest.
_UNSEEN = 0.0001 * 257


def with_trained_tokenizer(
    data: DataConfig, folder: Path, files: Mapping[str, Sequence[str]]
) -> DataConfig:
    """The data with its tokenizer in `folder`, where it is to be trained; else as it was.

    Raises:
        ConfigError: a source can't be read, or holds no text.
    """
    training = data.tokenizer_training
    if training is None:
        return data
    from tokenizers import AddedToken

    sample = Sample(data, files)
    if next(iter(sample), None) is None:
        raise ConfigError("data.tokenizer: the sources hold no text to train it on")
    trained, note = _TRAINERS[training.kind](sample, training)
    special = KINDS[training.kind].special
    trained.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    size = trained.get_vocab_size()
    if size > training.size:
        raise ConfigError(
            f"data.tokenizer.size: {training.kind} has {size:,} tokens at least of these sources, "
            f"not {training.size:,}; give a larger size, or train bpe"
        )
    target = folder / FOLDER
    save_tokenizer(trained.to_str(), target, settings_of(training))
    used = f"{training.kind} of {training.size:,}, {size:,} used{note}"
    print(f"tokenizer: {used}; trained on {sample.report()}", flush=True)
    return replace(data, tokenizer=str(target))


def settings_of(training: TokenizerTraining) -> dict[str, object]:
    """What `tokenizer_config.json` says of it."""
    kind = KINDS[training.kind]
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": kind.special[0],
        "bos_token": kind.special[0],
        "pad_token": "[PAD]" if "[PAD]" in kind.special else kind.special[0],
        "model_max_length": _ANY_LENGTH,
        "clean_up_tokenization_spaces": False,
    }
    if kind.unknown is not None:
        settings["unk_token"] = kind.unknown
    if training.kind == "wordpiece":
        settings |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return settings


def save_tokenizer(document: str, folder: Path, settings: Mapping[str, object]) -> None:
    """Write a tokenizer's folder; it is on the disk then. `document`: of its `tokenizer.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {JSON_NAME: document, SETTINGS_NAME: json.dumps(settings, indent=1) + "\n"}
    for name, content in contents.items():
        with (folder / name).open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


@dataclass(slots=True)
class Sample:
    """Texts of the training sources, of each file as large a share as of all others.

    `limit_bytes`: of all of them, `limit_word_bytes`: of their distinct words, both up to the last
    text. `taken_bytes` and `word_bytes`: how much was given so far; `is_part`: a file had more.
    """

    data: DataConfig
    files: Mapping[str, Sequence[str]]
    limit_bytes: int = SAMPLE_BYTES
    limit_word_bytes: int = WORD_BYTES
    taken_bytes: int = 0
    word_bytes: int = 0
    is_part: bool = False
    total_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        paths = [file for source in self.data.sources for file in self.files[source.name]]
        self.total_bytes = sum(Path(file).stat().st_size for file in paths)

    def __iter__(self) -> Iterator[str]:
        """The same texts every time. Raises: ConfigError: a source can't be read."""
        passed_bytes = self.taken_bytes = self.word_bytes = 0
        words: set[int] = set()
        for source in self.data.sources:
            for files in _read_together(source, self.files[source.name]):
                passed_bytes += sum(Path(file).stat().st_size for file in files)
                share = passed_bytes / max(1, self.total_bytes)
                for text in self._texts(source, files, share):
                    self._count(text, words)
                    yield text

    def _texts(self, source: SourceConfig, files: Sequence[str], share: float) -> Iterator[str]:
        # Bad rows are counted when the source is cut.
        for text, _, _ in pieces(source, files, BadRows(1.0)):
            if (
                self.taken_bytes >= self.limit_bytes * share
                or self.word_bytes >= self.limit_word_bytes * share
            ):
                self.is_part = True
                return
            yield text

    def _count(self, text: str, words: set[int]) -> None:
        """`words`: the hashes of those that came before."""
        self.taken_bytes += _size_bytes(text)
        for word in set(text.split()):
            identity = hash(word)
            if identity not in words:
                words.add(identity)
                self.word_bytes += _size_bytes(word)

    def report(self) -> str:
        """How much of the sources it was."""
        taken = f"{size_text(self.taken_bytes)} of text"
        if not self.is_part:
            return taken
        return f"{taken}: the beginning of every file ({size_text(self.total_bytes)} in all)"


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _read_together(source: SourceConfig, files: Sequence[str]) -> list[Sequence[str]]:
    """A saved data set is read as a whole, everything else file by file."""
    return [files] if source.format == "hf" else [[file] for file in files]


def _bpe(texts: Iterable[str], training: TokenizerTraining) -> tuple[Any, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trainer = trainers.BpeTrainer(
        vocab_size=training.size,
        min_frequency=2,
        special_tokens=list(KINDS[training.kind].special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    return _of_bytes(Tokenizer(models.BPE()), texts, trainer), ""


def _unigram(texts: Iterable[str], training: TokenizerTraining) -> tuple[Any, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trainer = trainers.UnigramTrainer(
        vocab_size=training.size,
        special_tokens=list(KINDS[training.kind].special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    trained = _of_bytes(Tokenizer(models.Unigram()), texts, trainer)
    listed = json.loads(trained.to_str())["model"]["vocab"]
    trained.model = models.Unigram(_ordered_pieces(listed, KINDS[training.kind].special))
    return trained, ""


def _ordered_pieces(
    listed: Sequence[tuple[str, float]], special: Sequence[str]
) -> list[tuple[str, float]]:
    """The pieces of a vocabulary, the likeliest first.

    The trainer gives letters that no text had scores just above the lowest, in the order of a hash
    table: here they all have the lowest.
    """
    pieces = [(piece, score) for piece, score in listed if piece not in special]
    least = min(score for _, score in pieces)
    scores = {
        piece: round(least if len(piece) == 1 and score < least + _UNSEEN else score, 6)
        for piece, score in pieces
    }
    ordered = sorted(scores, key=lambda piece: (-scores[piece], piece))
    return [*((token, 0.0) for token in special), *((piece, scores[piece]) for piece in ordered)]


def _of_bytes(trained: Any, texts: Iterable[str], trainer: Any) -> Any:
    """Trained on the letters that stand for a text's bytes."""
    from tokenizers import decoders, pre_tokenizers

    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trained.train_from_iterator(texts, trainer)
    return trained


def _wordpiece(texts: Iterable[str], training: TokenizerTraining) -> tuple[Any, str]:
    """As BERT's, with case. The trainer numbers letters inside words in the order of a hash table,
    and equal pairs by these numbers: it is given them as special tokens, which have theirs first.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    kind = KINDS[training.kind]
    trained = Tokenizer(models.WordPiece(unk_token=kind.unknown))
    trained.normalizer = normalizers.BertNormalizer(lowercase=False)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.decoder = decoders.WordPiece()
    counted: Counter[str] = Counter()
    for text in texts:
        counted.update("".join(trained.normalizer.normalize_str(text).split()))
    letters = sorted(_most_frequent(counted, training.size // 4))
    trainer = trainers.WordPieceTrainer(
        vocab_size=training.size,
        min_frequency=2,
        special_tokens=[*kind.special, *(f"##{letter}" for letter in letters)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    whole = Tokenizer(models.WordPiece(unk_token=kind.unknown))
    whole.normalizer, whole.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    whole.train_from_iterator(texts, trainer)
    trained.model = models.WordPiece(whole.get_vocab(), unk_token=kind.unknown)
    return trained, ""


def _char(texts: Iterable[str], training: TokenizerTraining) -> tuple[Any, str]:
    """The most frequent characters, in the order of their code points."""
    from tokenizers import Tokenizer, decoders, models

    kind = KINDS[training.kind]
    counted: Counter[str] = Counter()
    for text in texts:
        counted.update(text)
    kept = sorted(_most_frequent(counted, training.size - len(kind.special)))
    vocabulary = {token: number for number, token in enumerate((*kind.special, *kept))}
    trained = Tokenizer(models.BPE(vocabulary, [], unk_token=kind.unknown))
    trained.decoder = decoders.Fuse()
    lost = counted.total() - sum(counted[character] for character in kept)
    if not lost:
        return trained, ""
    share = lost / counted.total()
    return (
        trained,
        f" of {len(counted):,} characters; {share_text(share, 2)} of the text is {kind.unknown}",
    )


def _most_frequent(counted: Counter[str], most: int) -> list[str]:
    ordered = sorted(counted, key=lambda character: (-counted[character], character))
    return ordered[:most]


_TRAINERS: Mapping[str, Callable[[Iterable[str], TokenizerTraining], tuple[Any, str]]] = {
    "bpe": _bpe,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "char": _char,
}

"""Data sets on the hub as sources: their address, and the files of one of their splits.

A data set's card may name configurations and the files of their splits. Where it doesn't, files
belong to a split by the words of their paths, and to `train` without such a word: the rules of
Hugging Face's own `datasets` (its documentation, "Structure your repository").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from trainer_runtime.core.files.compression import without_ending
from trainer_runtime.core.files.corpus import ENDINGS, TEXT, is_named
from trainer_runtime.core.files.protected import names_credentials

PREFIX = "hf://"
TRAIN = "train"
_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_ADDRESS = re.compile(
    rf"hf://(?:datasets/)?(?P<name>{_PART}(?:/{_PART})?)(?:@(?P<revision>[A-Za-z0-9][\w./-]*))?"
    r"(?:#(?P<config>[\w .-]+)?(?::(?P<split>[\w.-]+))?)?",
    re.ASCII,
)
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF_WORD = {word: split for split, words in _WORDS.items() for word in words}
_TEXT_ENDINGS = (".txt", ".md", ".py")
_MOST_NAMED = 12


class NotInDatasetError(ValueError):
    """The data set has not what its address names; the message says what it has."""


@dataclass(frozen=True, slots=True)
class DatasetAddress:
    """`hf://OWNER/NAME@REVISION#CONFIG:SPLIT`; all but the name may be left out."""

    name: str
    revision: str | None = None
    config: str | None = None
    split: str = TRAIN

    @classmethod
    def find(cls, path: str) -> DatasetAddress | None:
        """The address that a source's path is; None where it is none."""
        match = _ADDRESS.fullmatch(path)
        if match is None:
            return None
        parts = match.groupdict()
        return cls(parts["name"], parts["revision"], parts["config"], parts["split"] or TRAIN)


def files_of_split(
    names: Iterable[str], configs: Sequence[Mapping[str, Any]], address: DatasetAddress
) -> list[str]:
    """The files of the address's configuration and split, sorted; `configs` are the card's.

    Raises:
        NotInDatasetError: there is none of that name.
    """
    config = _config(configs, address)
    by_split = _by_split(data_files(names), config)
    if address.split not in by_split:
        has = _listed(by_split) if by_split else "no files of data"
        raise NotInDatasetError(f"it has no split {address.split!r}, but {has}")
    return sorted(by_split[address.split])


def data_files(names: Iterable[str]) -> list[str]:
    """Those of the files that may be data: not hidden, no credentials, no description."""
    return [name for name in names if _is_data(name)]


def files_of_format(names: Sequence[str], data_format: str) -> list[str]:
    """Those of the files that a source of the format reads.

    Raises:
        NotInDatasetError: none is; the message names the format that some are of.
    """
    read = [name for name in names if _is_of(name, data_format)]
    if read:
        return read
    formats = [
        other
        for other in (*ENDINGS, TEXT)
        if other not in ("hf", "preference") and any(_is_of(name, other) for name in names)
    ]
    ends = sorted({PurePosixPath(name).suffix or name for name in names})
    instead = f": set format to {formats[0]}" if formats else ", which no format of a source reads"
    raise NotInDatasetError(f"its files are {_listed(ends)}, not {data_format}{instead}")


def _is_of(name: str, data_format: str) -> bool:
    if data_format in ENDINGS:
        return is_named(name, data_format)
    return without_ending(name).endswith(_TEXT_ENDINGS)


def _config(
    configs: Sequence[Mapping[str, Any]], address: DatasetAddress
) -> Mapping[str, Any] | None:
    by_name = {str(config.get("config_name") or "default"): config for config in configs}
    if address.config is not None:
        if address.config in by_name:
            return by_name[address.config]
        has = f"but {_listed(by_name)}" if by_name else "and its card names none"
        raise NotInDatasetError(f"it has no configuration {address.config!r}, {has}")
    default = [config for config in configs if config.get("default") is True]
    chosen = default[0] if default else by_name.get("default")
    if chosen is None and len(by_name) > 1:
        raise NotInDatasetError(
            f"it has the configurations {_listed(by_name)}: name one, as in "
            f"{PREFIX}{address.name}#{next(iter(by_name))}"
        )
    return chosen if chosen is not None else next(iter(by_name.values()), None)


def _by_split(names: Sequence[str], config: Mapping[str, Any] | None) -> dict[str, list[str]]:
    if config is None:
        return _by_words(names)
    given = config.get("data_files")
    if not given:
        folder = str(config.get("data_dir") or "").strip("/.")
        below = [name for name in names if not folder or name.startswith(f"{folder}/")]
        return _by_words(below)
    by_split: dict[str, list[str]] = {}
    for split, pattern in _patterns(given):
        matching = [name for name in names if _regex(pattern).fullmatch(name)]
        if matching:
            by_split.setdefault(split, []).extend(matching)
    return by_split


def _patterns(given: Any) -> Iterator[tuple[str, str]]:
    for entry in given if isinstance(given, list) else [given]:
        if isinstance(entry, Mapping):
            paths = entry.get("path")
            for path in paths if isinstance(paths, list) else [paths]:
                yield str(entry.get("split") or TRAIN), str(path)
        else:
            yield TRAIN, str(entry)


def _regex(pattern: str) -> re.Pattern[str]:
    """Of a glob over paths: `*` stays in a folder, `**` doesn't."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern.removeprefix("./"))
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))


def _by_words(names: Sequence[str]) -> dict[str, list[str]]:
    by_split: dict[str, list[str]] = {}
    for name in names:
        by_split.setdefault(_split_of(name) or "", []).append(name)
    unnamed = by_split.pop("", [])
    return by_split or ({TRAIN: unnamed} if unnamed else {})


def _split_of(name: str) -> str | None:
    """By a folder of the path, or a word of the file's name, between signs."""
    for part in reversed(PurePosixPath(name).parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in _SPLIT_OF_WORD:
                return _SPLIT_OF_WORD[word]
    return None


def _is_data(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == ".." for part in path.parts)
    return not (
        hidden
        or path.is_absolute()
        or path.name in ("README.md", "dataset_infos.json", "LICENSE")
        or names_credentials(path)
    )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + more

"""Filters of texts before they are tokenized (`data.filters`), by datatrove.

Its steps are used that need no download: Gopher's quality rules (arXiv 2112.11446), C4's
(arXiv 1910.10683), and MinHash (Broder 1997). They judge a text as a whole, in the order of the
sources, so that the same files give the same texts. Words and sentences are English ones.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy

from trainer_runtime.core.config import FilterConfig, SourceConfig
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.documents import Piece, cut
from trainer_runtime.train.data.judges import Judges, quieten

# spaCy takes some hundred bytes for a word.
LONGEST_CHARACTERS = 1 << 20
_CACHE_KIB = 128 << 10
_BUCKETS = 14  # as MinhashConfig has it
# Of a part all signatures of a bucket are sorted at once, 68 bytes each.
_TEXTS_OF_A_PART = 1 << 20
_EXACTLY, MINHASH = "exact", "minhash"
TOO_LONG, EXACT, NEAR, MASKED = "too_long", "exact_duplicate", "near_duplicate", "masked"


class Filters:
    """What is left of the sources' texts, and how many were dropped by which filter.

    `folder`: for files beside the shards.
    """

    def __init__(self, config: FilterConfig, folder: Path) -> None:
        """Raises: ConfigError: a package is missing."""
        self._folder = folder
        self._dropped: dict[str, Counter[str]] = {}
        self._read: Counter[str] = Counter()
        self._near: _NearDuplicates | None = None
        try:
            self._judges = Judges(config)
            self._mask = _mask() if config.pii is not None else None
        except ImportError as error:
            raise _lacks(error) from None
        self._seen = _Seen(folder / ".seen.db") if config.dedup == _EXACTLY else None

    def find_near_duplicates(self, sources: Iterable[tuple[SourceConfig, Iterator[Piece]]]) -> None:
        """Read all sources once, as `apply` will, to drop near duplicates then.

        Raises:
            ConfigError: a source can't be read, or a package is missing.
        """
        try:
            near = _NearDuplicates(self._folder / ".minhash")
            near.sign(text for source, read in sources for text in self._judged(source, read))
            self._near = near
        except ImportError as error:
            raise _lacks(error) from None

    def apply(self, source: SourceConfig, read: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces of a source's texts that are kept; to be asked for each source once.

        Raises:
            ConfigError: a text is too long to be judged.
        """
        dropped = self._dropped[source.name] = Counter()
        for (judged, kept), share in self._judges.judge(_whole(source, read, dropped)):
            self._read[source.name] += 1
            reason = judged or self._duplicate(kept)
            if reason is not None:
                dropped[reason] += 1
                continue
            masked = kept if self._mask is None else self._mask(kept)
            dropped[MASKED] += masked != kept
            yield from cut(masked, True, share)

    def counts(self, source: str) -> dict[str, Any]:
        """Of how many texts how many were dropped by which filter, and in how many something was
        masked."""
        by_filter = dict(sorted((+self._dropped[source]).items()))
        masked = by_filter.pop(MASKED, 0)
        of = self._read[source] + by_filter.get(TOO_LONG, 0)
        return {"of": of, "dropped": by_filter, "masked": masked}

    def close(self) -> None:
        self._judges.close()
        if self._seen is not None:
            self._seen.close()
        if self._near is not None:
            self._near.remove()

    def _judged(self, source: SourceConfig, read: Iterator[Piece]) -> Iterator[str]:
        """The texts among which near duplicates are searched."""
        for (reason, kept), _ in self._judges.judge(_whole(source, read, Counter())):
            if reason is None:
                yield kept

    def _duplicate(self, text: str) -> str | None:
        if self._seen is not None and not self._seen.add(text):
            return EXACT
        if self._near is not None and self._near.is_next_dropped():
            return NEAR
        return None


def report(counts: Mapping[str, Any]) -> str:
    """Such as `1,000 of 3,001 texts dropped: exact_duplicate 1,000; 3 masked`."""
    dropped = counts["dropped"]
    by_filter = ", ".join(f"{name} {count:,}" for name, count in dropped.items())
    of = f"{sum(dropped.values()):,} of {counts['of']:,} texts dropped"
    masked = f"; {counts['masked']:,} masked" if counts["masked"] else ""
    return f"{of}: {by_filter}{masked}" if by_filter else f"{of}{masked}"


def _lacks(error: ImportError) -> ConfigError:
    return ConfigError(
        f"data.filters takes packages that the environment lacks ({error.name or error}); add "
        "datatrove and spacy by environment.requirements"
    )


def _whole(
    source: SourceConfig, read: Iterator[Piece], dropped: Counter[str]
) -> Iterator[tuple[str, float]]:
    """The texts of which pieces are read, with the share of the source that is read then."""
    pieces: list[str] = []
    held = 0
    for text, ends, share in read:
        held += len(text)
        if held <= LONGEST_CHARACTERS:
            pieces.append(text)
        elif source.format == "text":
            raise ConfigError(
                f"data source {source.name}: a file of it has over {LONGEST_CHARACTERS:,} "
                "characters, and data.filters judge whole texts: give rows (JSON lines, Parquet), "
                "or a file for each text"
            )
        if ends:
            if held <= LONGEST_CHARACTERS:
                yield "".join(pieces), share
            else:
                dropped[TOO_LONG] += 1
            pieces, held = [], 0
        elif held > LONGEST_CHARACTERS:
            pieces.clear()


def _mask() -> Callable[[str], str]:
    """Addresses of mail and of public machines become examples of such."""
    quieten()
    from datatrove.pipeline.formatters.pii import PIIFormatter

    # One replacement each: datatrove would take them in turn, by the texts before.
    masking = PIIFormatter(email_replacement="email@example.com", ip_replacement="22.214.171.124")
    return lambda text: str(masking.format(text))


class _Seen:
    """The digests of texts, on a disk: a billion texts take some 40 GB."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        # Texts are read ahead by a thread of their own, and by one thread at a time.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for line in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(line)

    def add(self, text: str) -> bool:
        """Whether the text is new."""
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        added = self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,))
        return added.rowcount == 1

    def close(self) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)


class _NearDuplicates:
    """Which of a sequence of texts are near duplicates of others of it, by datatrove's MinHash with
    its own settings: 14 buckets of 8 hashes over five words, about .72 in common."""

    def __init__(self, folder: Path) -> None:
        """Raises: ImportError."""
        quieten()
        from datatrove.pipeline.dedup import minhash

        self._minhash, self._folder = minhash, folder
        self.remove()
        self._number = 0
        self._dropped: frozenset[int] = frozenset()

    def sign(self, texts: Iterator[str]) -> None:
        """Read all texts, and find the near duplicates among them.

        Raises:
            ImportError: a package is missing.
        """
        from datatrove.data import Document
        from datatrove.utils.hashing import HashConfig

        # xxhash from 4 on hashes no text, and datatrove gives it one.
        config = self._minhash.MinhashConfig(hash_config=HashConfig(hash_fc="sha1"))
        signatures, pairs = str(self._folder / "signatures"), str(self._folder / "pairs")
        step = self._minhash.MinhashDedupSignature(signatures, config)
        texts = iter(texts)
        part, first = 0, next(texts, None)
        while first is not None:
            step.run((Document(text=text, id="") for text in _part(first, texts)), part)
            part, first = part + 1, next(texts, None)
        if part == 0:
            return
        for bucket in range(_BUCKETS):
            found = self._minhash.MinhashDedupBuckets(signatures, pairs, config=config)
            found.run(None, bucket, _BUCKETS)
        self._minhash.MinhashDedupCluster(pairs, str(self._folder / "dropped"), config).run()

    def is_next_dropped(self) -> bool:
        """Whether the next text of the same sequence is one to leave out."""
        part, number = divmod(self._number, _TEXTS_OF_A_PART)
        if number == 0:
            file = self._folder / "dropped" / f"{part:06d}.remove"
            dropped = numpy.fromfile(file, dtype="<u4") if file.exists() else ()
            self._dropped = frozenset(map(int, dropped))
        self._number += 1
        return number in self._dropped

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _part(first: str, texts: Iterator[str]) -> Iterator[str]:
    yield first
    for _ in range(_TEXTS_OF_A_PART - 1):
        text = next(texts, None)
        if text is None:
            return
        yield text

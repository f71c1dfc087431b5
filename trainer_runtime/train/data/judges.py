"""Judges single texts by datatrove's filters, on several cores and in the texts' order."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from trainer_runtime.core.config import FilterConfig

# Each takes some 200 MiB.
_MOST_PROCESSES = 8
_BATCH_CHARACTERS, _BATCH_TEXTS = 1 << 20, 256
_PARENT_POLL_S = 1.0

# Why a text is not kept, None where it is; what it has become.
Judged = tuple[str | None, str]
Judge = Callable[[str], Judged]


class Judges:
    """The chosen filters of single texts. Those that split words work in processes of their own."""

    def __init__(self, config: FilterConfig) -> None:
        """Raises: ImportError: a package is missing."""
        self._judges = tuple(judges_of(config))
        self._pool = None
        if config.gopher_quality or config.c4_quality:
            # Forked, before there are threads: spaCy and its words are loaded once for all.
            self._pool = ProcessPoolExecutor(
                _processes(), get_context("fork"), _begin, (config, os.getpid())
            )
            self._pool.submit(_judge_all, []).result()

    def judge(self, texts: Iterable[tuple[str, float]]) -> Iterator[tuple[Judged, float]]:
        """Each text's judgement, with what was given with it."""
        if self._pool is None:
            for text, share in texts:
                yield judged_by(self._judges, text), share
            return
        waiting: deque[tuple[Future[list[Judged]], list[float]]] = deque()
        for batch in _batches(texts):
            future = self._pool.submit(_judge_all, [text for text, _ in batch])
            waiting.append((future, [share for _, share in batch]))
            if len(waiting) > 2 * _processes():
                yield from _judgements(*waiting.popleft())
        while waiting:
            yield from _judgements(*waiting.popleft())

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def judges_of(config: FilterConfig) -> Iterator[Judge]:
    """The filters, cheap ones first.

    Raises:
        ImportError: a package is missing.
    """
    least = config.min_chars
    if least is not None:
        yield lambda text: ("min_chars" if len(text) < least else None, text)
    if config.gopher_quality:
        quieten()
        from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter

        yield _judge_by("gopher_quality", GopherQualityFilter())
    if config.c4_quality:
        quieten()
        from datatrove.pipeline.filters.c4_filters import C4QualityFilter

        yield _judge_by("c4_quality", C4QualityFilter())


def judged_by(judges: Iterable[Judge], text: str) -> Judged:
    """By the first of the judges that drops it."""
    for judge in judges:
        reason, text = judge(text)
        if reason is not None:
            return reason, ""
    return None, text


def quieten() -> None:
    """datatrove's own log and progress, which nobody reads here, are not printed.

    Raises:
        ImportError: its packages are missing.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")
    from loguru import logger

    logger.disable("datatrove")


def _judge_by(name: str, step: Any) -> Judge:
    """By a filter of datatrove, which may change the text that it keeps."""
    from datatrove.data import Document

    step.filter(Document(text="A text. " * 60, id=""))  # loads what splits words, or fails

    def judge(text: str) -> Judged:
        document = Document(text=text, id="")
        result = step.filter(document)
        is_kept = result[0] if isinstance(result, tuple) else result
        return None if is_kept else name, document.text

    return judge


def _processes() -> int:
    return max(1, min(_MOST_PROCESSES, len(os.sched_getaffinity(0))))


def _batches(texts: Iterable[tuple[str, float]]) -> Iterator[list[tuple[str, float]]]:
    batch: list[tuple[str, float]] = []
    held = 0
    for text, share in texts:
        batch.append((text, share))
        held += len(text)
        if held >= _BATCH_CHARACTERS or len(batch) >= _BATCH_TEXTS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _judgements(
    future: Future[list[Judged]], shares: list[float]
) -> Iterator[tuple[Judged, float]]:
    yield from zip(future.result(), shares, strict=True)


# Of a process of the pool.
_own: list[Judge] = []


def _begin(config: FilterConfig, parent: int) -> None:
    """In a process of the pool: have its judges ready, and end with the one that began it."""
    _own[:] = judges_of(config)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _judge_all(texts: list[str]) -> list[Judged]:
    return [judged_by(_own, text) for text in texts]

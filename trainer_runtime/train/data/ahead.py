"""Reads one item ahead in a thread, while the one before is in use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; the next one is made while one is in use. What `items` raises, this does."""

    def read() -> tuple[T, ...]:
        return tuple(islice(items, 1))

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as reader:
        coming = reader.submit(read)
        while found := coming.result():
            coming = reader.submit(read)
            yield from found

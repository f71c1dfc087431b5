"""Asking the stand-in for Kaggle from tests that are no coroutines, through one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from support.kaggle.site import KaggleSite

from trainmaster.backends.kaggle.client import KernelPush
from trainmaster.backends.kaggle.process import KaggleProcess
from trainmaster.home.paths import Home

_Found = TypeVar("_Found")


class Asked:
    """A client, and the loop that it lives in."""

    def __init__(self, runner: asyncio.Runner, home: Path, environment: dict[str, str]) -> None:
        self._runner = runner
        self.client = KaggleProcess(Home(home), {**os.environ, **environment})

    def __call__(self, coroutine: Coroutine[Any, Any, _Found]) -> _Found:
        async def bounded() -> _Found:
            return await asyncio.wait_for(coroutine, 60)

        return self._runner.run(bounded())

    def events(self, ref: str, after: int = 0) -> list[tuple[str, str]]:
        """The whole of a log, asked for page by page."""
        found: list[tuple[str, str]] = []
        while True:
            page = self(self.client.log(ref, after, 10.0))
            found += page.events
            assert page.next_index == after + len(page.events)
            after = page.next_index
            if page.ended:
                return found

    def ran(self, site: KaggleSite, slug: str, code: str, **more: Any) -> str:
        """Push a script and wait for its end; the kernel's name."""
        pushed = self(self.client.push(kernel(slug, code, **more)))
        site.session(slug).join()
        return pushed.ref


@contextmanager
def asking(home: Path, environment: dict[str, str]) -> Iterator[Asked]:
    """As long as the context lasts."""
    with asyncio.Runner() as runner:
        asked = Asked(runner, home, environment)
        try:
            yield asked
        finally:
            runner.run(asked.client.close())


def kernel(slug: str, code: str, **more: Any) -> KernelPush:
    """A kernel without GPU; `code` finds its folders in `working` and `inputs`."""
    folders = (
        "import os, pathlib, sys, time\n"
        "working = pathlib.Path(os.environ['KAGGLE_WORKING_DIR'])\n"
        "inputs = pathlib.Path(os.environ['KAGGLE_INPUT_DIR'])\n"
    )
    settings = {"timeout_s": 60, "gpu": False, "internet": False, **more}
    return KernelPush(slug, slug, folders + code, **settings)

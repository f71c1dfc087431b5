"""Outputs of sessions, fetched file by file on demand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.files.names import safe_names
from trainer_runtime.core.kaggle.session_order import RUN_FOLDER
from trainer_runtime.core.protocol.followed_files import (
    JOURNAL,
    LARGEST_WHOLE_BYTES,
    attempt_of,
    is_appended,
    is_replaced,
)
from trainmaster.backends.follower import News
from trainmaster.backends.kaggle.client import MOST_OUTPUTS, Kaggle
from trainmaster.store.control.kaggle import KaggleSession
from trainmaster.store.mirror_writer import MirrorWriter

# A follower would have read it in parts; here it is read whole.
_LARGEST_FOLLOWED_BYTES = 1 << 30
_INDEX = "checkpoints_index.json"
_BELOW = f"{RUN_FOLDER}/"


class Outputs:
    """The output of a kernel's newest complete session; `folder`: local copies of its files."""

    def __init__(self, kaggle: Kaggle, ref: str, folder: Path) -> None:
        self._kaggle = kaggle
        self._ref = ref
        self._folder = folder

    async def names(self) -> list[str]:
        """The paths of the files in the run's folder."""
        names = safe_names(await self._kaggle.outputs(self._ref), MOST_OUTPUTS)
        return sorted(name.removeprefix(_BELOW) for name in names if name.startswith(_BELOW))

    async def fetch(self, name: str) -> Path:
        """Fetch one file of the run's folder, unless it was fetched before."""
        path = self._folder / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            await self._kaggle.fetch_output(self._ref, f"{_BELOW}{name}", path)
        return path

    async def complete(
        self, writer: MirrorWriter, session: KaggleSession, news: News
    ) -> dict[str, Any] | None:
        """Complete the mirror from the session's files; returns facts about the output.

        None without a run's folder. Files of earlier outputs are not fetched again.
        """
        names = await self.names()
        if JOURNAL not in names:
            return None
        shutil.rmtree(self._folder, ignore_errors=True)
        newest_attempt = session.newest_attempt
        for name in _in_order(names, newest_attempt):
            path = await self.fetch(name)
            if path.stat().st_size > _LARGEST_FOLLOWED_BYTES:
                continue
            data = path.read_bytes()
            if is_replaced(name):
                writer.replace(name, data)
                news.note(session.run_id, name)
            elif _take_missing(writer, name, data):
                news.note(session.run_id, name)
        return {
            "journal_bytes": (self._folder / JOURNAL).stat().st_size,
            "verified_step": _verified_step(self._folder / _INDEX),
        }


def _in_order(names: Sequence[str], known_attempts: int) -> list[str]:
    """The followed files of the session's attempts; the journal last, since it records ends."""
    wanted = [
        name
        for name in names
        if (is_appended(name) or is_replaced(name)) and not 0 < attempt_of(name) <= known_attempts
    ]
    return sorted(wanted, key=lambda name: (name == JOURNAL, name))


def _take_missing(writer: MirrorWriter, name: str, data: bytes) -> bool:
    """Append missing data to the mirror; a file that differs is replaced."""
    size, tail = writer.size(name), writer.tail(name)
    if len(data) < size:
        return False
    if data[size - len(tail) : size] != tail:
        writer.rotate(name, None)
        size = 0
    writer.append(name, data[size:], final=True)
    return True


def _verified_step(index: Path) -> int | None:
    try:
        fields = decode_fields(index.read_bytes(), index.name, max_bytes=LARGEST_WHOLE_BYTES)
        return fields.find_integer("resume_from")
    except (OSError, DecodingError):
        return None

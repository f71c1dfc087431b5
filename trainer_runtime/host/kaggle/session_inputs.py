"""Reads a kernel's mounts: an earlier session's output, data sets for the cache, secrets."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.kaggle.session_order import CACHE_MARK
from trainer_runtime.host.prepare.uploads import MARKER

# What a host's cache keeps of entries that are marked when they are whole.
_MARKED = "models"


class SessionError(Exception):
    """The session can't begin; in words for the reader of the kernel's log."""


def find_input(inputs: Path, slug: str) -> Path:
    """Where an input is mounted: `<slug>`, or `<kind>/<owner>/<slug>`; both have been seen.

    Raises:
        SessionError: nowhere.
    """
    for place in (inputs / slug, *sorted(inputs.glob(f"*/{slug}")), *_owned(inputs, slug)):
        if place.is_dir():
            return place
    there = sorted(path.name for path in inputs.iterdir()) if inputs.is_dir() else []
    raise SessionError(
        f"{slug} is not mounted below {inputs} (there: {', '.join(there) or 'nothing'}). "
        "It was given as an input of this kernel: check that it still exists at Kaggle."
    )


def link_cache(mounted: Path, cache: Path) -> list[str]:
    """Link what a data set holds into a cache, entry by entry; what is there already stays.

    An entry is a folder of links, not a link to a folder: locks and notes come to lie in it. What
    its marker is to hold lies beside the data set's folders. The names of what was linked.
    """
    linked = []
    for kind in sorted(path for path in mounted.iterdir() if path.is_dir()):
        for entry in sorted(path for path in kind.iterdir() if path.is_dir()):
            place = cache / kind.name / entry.name
            if not place.exists():
                _link(entry, place)
                _mark(place, mounted / CACHE_MARK, always=kind.name == _MARKED)
                linked.append(f"{kind.name}/{entry.name}")
    return linked


def _owned(inputs: Path, slug: str) -> list[Path]:
    return sorted(inputs.glob(f"*/*/{slug}"))


def _link(entry: Path, place: Path) -> None:
    place.mkdir(parents=True)
    for path in entry.iterdir():
        (place / path.name).symlink_to(path)


def _mark(place: Path, marker: Path, *, always: bool) -> None:
    if marker.is_file():
        write_atomic(place / MARKER, marker.read_bytes())
    elif always:
        (place / MARKER).touch()

"""Draws the pictures of docs/board.md: a planted home in a headless Chromium."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dataclasses import dataclass

from support.board.browser import Browser, opened_browser
from support.board.planted_board import followed_elsewhere, plant_board
from support.board.served_board import served_board

from trainmaster.board.serve import Board
from trainmaster.sync.workspace import open_workspace

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_RUN, _OTHER = "gpt2-124m-abcdef", "gpt2-124m-lr3e-4-abcdef"
_LISTED = "document.querySelector('.runs tbody tr')"
_DRAWN = (
    "document.querySelector('.tile, .comparison table') &&"
    " document.querySelectorAll('figure.chart path.curve').length >= 6"
)
_COLOURS = 256


@dataclass(frozen=True, slots=True)
class _Picture:
    """`page`: what stands behind the `#`; `shown`: once that is true; `at`: scrolled to there,
    where it is not the top."""

    name: str
    page: str
    shown: str = _DRAWN
    at: str = "body"
    theme: str = "light"
    width: int = 1180
    height: int = 980


_PICTURES = (
    _Picture("light", f"#/run/{_RUN}"),
    _Picture("run", f"#/run/{_RUN}", at=".checkpoints", height=900),
    _Picture("dark", f"#/run/{_RUN},{_OTHER}", theme="dark"),
    _Picture("narrow", "#/runs", _LISTED, width=390, height=844),
)


def main() -> None:
    """Write docs/board-NAME.png of every picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home = folder / "home"
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
            plant_board(workspace)
        with followed_elsewhere(home), served_board(home) as board, opened_browser(folder) as one:
            for picture in _PICTURES:
                _draw(board, one, picture, folder / f"{picture.name}.png")


def _draw(board: Board, browser: Browser, wanted: _Picture, raw: Path) -> None:
    browser.size(wanted.width, wanted.height, phone=wanted.width < 500)
    browser.theme(wanted.theme)
    browser.open(board.url)
    browser.until(_LISTED)
    browser.ask(f"location.hash = {json.dumps(wanted.page)}")
    browser.until(wanted.shown)
    browser.ask(f"document.querySelector({json.dumps(wanted.at)}).scrollIntoView()")
    browser.picture(raw)
    with Image.open(raw) as picture:
        few = picture.convert("RGB").quantize(_COLOURS, kmeans=2, dither=Image.Dither.NONE)
        few.save(_DOCS / f"board-{wanted.name}.png", optimize=True)


if __name__ == "__main__":
    main()

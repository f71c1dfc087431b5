"""Draws the pictures of docs/board.md: a planted home in a headless Chromium, light and dark."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.board.browser import Browser, opened_browser
from support.board.planted_board import followed_elsewhere, plant_board
from support.board.served_board import served_board

from trainmaster.board.serve import Board
from trainmaster.sync.workspace import open_workspace

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_RUN = "gpt2-124m-abcdef"
_DRAWN = (
    "document.querySelector('.tile') &&"
    " document.querySelectorAll('figure.chart path.curve').length >= 6"
)


def main() -> None:
    """Write docs/board-light.png and docs/board-dark.png."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home = folder / "home"
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
            plant_board(workspace)
        with followed_elsewhere(home), served_board(home) as board, opened_browser(folder) as one:
            one.size(1180, 980)
            for theme in ("light", "dark"):
                _draw(board, one, theme, folder / f"{theme}.png")


def _draw(board: Board, browser: Browser, theme: str, raw: Path) -> None:
    browser.theme(theme)
    browser.open(board.url)
    browser.until("document.querySelector('.runs tbody tr')")
    browser.ask(f"location.hash = '#/run/{_RUN}'")
    browser.until(_DRAWN)
    browser.picture(raw)
    with Image.open(raw) as picture:
        picture.convert("RGB").save(_DOCS / f"board-{theme}.png", optimize=True)


if __name__ == "__main__":
    main()

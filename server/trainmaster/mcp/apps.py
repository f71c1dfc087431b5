"""The board for clients with MCP Apps (SEP-1865): one page, drawn from the results of tools.

A client reads it as a resource, shows it in a frame that reaches nothing, and posts the results of
the tools that name it. Its styles and elements are the board's own files.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from mcp.server.apps import Apps
from mcp.server.mcpserver.resources import FunctionResource

from trainmaster.metrics.plots.palette import stylesheet

BOARD = "ui://trainmaster/board.html"
_FILES = Path(__file__).parents[1] / "board" / "page"
_SCRIPTS = ("dom.js", "app.js")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def board_app() -> Apps:
    """The extension that offers the page; tools name it by `Definition.page`."""
    apps = Apps()
    apps.add_resource(
        FunctionResource(
            uri=BOARD,
            name="board",
            title="Board",
            description="Runs and what needs attention, for overview and list_runs",
            fn=board_page,
            mime_type="text/html;profile=mcp-app",
        )
    )
    return apps


@cache
def board_page() -> str:
    """The page as one document, which loads nothing."""
    modules = [(_FILES / name).read_text() for name in _SCRIPTS]
    script = "\n".join(_EXPORT.sub("", _IMPORT.sub("", module)) for module in modules)
    styles = stylesheet() + (_FILES / "board.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="color-scheme" content="light dark">\n<title>Trainmaster</title>\n'
        f"<style>\n{styles}\n</style>\n</head>\n<body>\n"
        '<main id="main"></main>\n'
        f'<script type="module">\n{script}\n</script>\n</body>\n</html>\n'
    )

"""A program of Python's that the kernel starts wherever this interpreter lies."""

from __future__ import annotations

import sys


def python_script(text: str) -> str:
    """The file's text: a first line can't name an interpreter whose path has spaces, so a shell
    starts it, whose line is a string to Python."""
    return f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n{text}"

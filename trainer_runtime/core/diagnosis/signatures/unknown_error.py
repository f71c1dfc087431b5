"""The evidence of an error that has no code: its root, its place, the versions in play.

What can be said of its phase is in phase_text.py, in words of ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_runtime.core.diagnosis.traceback_text import Frame, Traceback, last_traceback

_PACKAGES = (
    "torch|transformers|trl|peft|accelerate|deepspeed|datasets|tokenizers|huggingface_hub|vllm|ray"
    "|flash[-_]attn|bitsandbytes|xformers|triton|numpy|lightning|litgpt|unsloth|jax|cuda|python"
)
_VERSION = re.compile(
    rf"(?i)\b({_PACKAGES})(?:[ _-]?version)?(?: ?(?:==|=|:) ?|[- ]v?)(\d{{1,4}}\.\d[\w.+]{{0,24}})"
)
_REMEDY = re.compile(
    rb"(?i)\b(?:please|try|must|should|needs? to|install|upgrade|instead|consider|make sure|"
    rb"set [`'\"\w]+ to|pass [`'\"])"
)
_MOST_VERSIONS = 8
_LONGEST = 300


def traceback_of(tail: bytes, message: bytes) -> Traceback | None:
    """The log's last traceback, if it ends in this message."""
    traceback = last_traceback(tail.decode("utf-8", errors="replace"))
    if traceback is None or traceback.last.type.encode() not in message:
        return None
    return traceback


def evidence(traceback: Traceback, message: bytes, tail: bytes) -> list[bytes]:
    """Versions, the chain's first error, the user's frame, the innermost frame, the message."""
    texts: list[str] = []
    if versions := _versions(tail):
        texts.append(versions)
    if traceback.first is not traceback.last:
        texts.append(f"{traceback.first.type}: {traceback.first.message}"[:_LONGEST])
    frames = [traceback.user_frame, traceback.last.frames[-1]]
    texts += [_place(frame) for frame in frames if frame is not None]
    return [*(text.encode() for text in dict.fromkeys(texts)), message]


def says_remedy(lines: Sequence[bytes]) -> bool:
    """Whether the message, the last of its lines, asks the reader to do something."""
    return bool(lines and _REMEDY.search(lines[-1]))


def _versions(tail: bytes) -> str:
    text = tail.decode("utf-8", errors="replace")
    newest = {match[1].lower().replace("_", "-"): match[2] for match in _VERSION.finditer(text)}
    shown = [f"{name} {version.rstrip('.')}" for name, version in newest.items()]
    return ", ".join(shown[:_MOST_VERSIONS])


def _place(frame: Frame) -> str:
    return f'File "{frame.file}", line {frame.line}, in {frame.function}'

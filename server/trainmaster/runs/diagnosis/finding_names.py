"""Names of findings and patches, as a journal gives them."""

from __future__ import annotations

from trainer_runtime.core.protocol.finding import Finding


def is_named(finding: Finding) -> bool:
    """Whether id and code could be names: a journal may be of a newer format, or damaged."""
    return is_word(finding.id) and is_word(finding.code)


def word(text: str) -> str:
    """The name, as it is.

    Raises:
        ValueError: it is not one of the catalogues'.
    """
    if not is_word(text):
        raise ValueError(f"{text[:80]!r} is not a name of the catalogues")
    return text


def is_word(text: str) -> bool:
    """Whether this could be a name of a catalogue."""
    return text.isascii() and text.replace("_", "").isalnum() and len(text) <= 64

"""Recognizes secrets by their form: keys of known services, private keys, and values that are
assigned to a name such as `API_KEY`."""

from __future__ import annotations

import re

_FORMS = re.compile(
    r"hf_[A-Za-z0-9]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
    r"|sk-[\w-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|xox[a-z]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|rpa_[A-Za-z0-9]{20,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"
    r"|(?<=://)[^\s/:@]*:[^\s/@]{4,}(?=@)"
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)(?=-----END|\Z)", re.DOTALL)
# A literal; what a program computes (`os.environ[…]`) is not a secret.
_ASSIGNED = re.compile(
    r"""(?i)((?:secret|passw(?:or)?d|credential|(?:key|token)\b)[\w.-]*["']?\s*[:=]\s*)"""
    r"""(?:(["'])(?=[^\s"']{6,}["'])[^\s"']+|(?<==)[^\s"'()\[\]{}]{8,}(?=[ \t]*(?:\#|$)))""",
    re.MULTILINE,
)


def mask_patterns(text: str) -> str:
    """The text with `*` in place of what has the form of a secret; line ends stay."""
    text = _PRIVATE_KEY.sub(lambda match: match[1] + re.sub(r"[^\n]", "*", match[2]), text)
    text = _ASSIGNED.sub(_masked_value, text)
    return _FORMS.sub(lambda match: "*" * len(match[0]), text)


def _masked_value(match: re.Match[str]) -> str:
    quote = match[2] or ""
    return match[1] + quote + "*" * (len(match[0]) - len(match[1]) - len(quote))

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
# Of a diff there may be no more than some lines of a key.
_OF_A_KEY = re.compile(r"^([ +-]?)([A-Za-z0-9+/]{60,76}={0,2})$", re.MULTILINE)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)(?=-----END|\Z)", re.DOTALL)
# A literal; what a program computes (`os.environ[…]`) is not a secret.
_ASSIGNED = re.compile(
    r"""(?i)((?:secret|passw(?:or)?d|credential|(?:key|token)\b)[\w.-]*["']?\]?\s*[:=]\s*)"""
    r"""(?:("{3}|'{3}|["'])(?=[^\s"']{6,}["'])[^\s"']+"""
    r"""|(?<==)[^\s"'()\[\]{}]{8,}(?=[ \t]*(?:\#|$)))""",
    re.MULTILINE,
)
# Without quotes, as in YAML; what follows a key or token may be any name, unless it has a digit.
_BARE = re.compile(
    r"""(?i)((?:(?:secret|passw(?:or)?d|credential)[\w.-]*[ \t]*[:=]"""
    r"""|(?:key|token)[ \t]*[:=](?=[ \t]*[^\s\d]*\d))[ \t]*)"""
    r"""([^\s"'()\[\]{},]{8,})(?=[ \t]*(?:\#|$))""",
    re.MULTILINE,
)


def mask_patterns(text: str) -> str:
    """The text with `*` in place of what has the form of a secret; line ends stay."""
    text = _PRIVATE_KEY.sub(lambda match: match[1] + re.sub(r"[^\n]", "*", match[2]), text)
    text = _OF_A_KEY.sub(_masked_rest, text)
    text = _BARE.sub(_masked_rest, _ASSIGNED.sub(_masked_value, text))
    return _FORMS.sub(lambda match: "*" * len(match[0]), text)


def _masked_rest(match: re.Match[str]) -> str:
    return match[1] + "*" * len(match[2])


def _masked_value(match: re.Match[str]) -> str:
    quote = match[2] or ""
    return match[1] + quote + "*" * (len(match[0]) - len(match[1]) - len(quote))

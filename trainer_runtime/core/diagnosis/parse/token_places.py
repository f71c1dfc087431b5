"""Where the number tokens are in lines of one shape: always in the same places."""

from __future__ import annotations

import re

from trainer_runtime.core.records import dataclass

_PLAIN = re.compile(rb"(-?)(0+)(?:\.(0*))?")
# Of so many digits, the number without its point and the power of ten are exact floats: their
# quotient is what `float` makes of the text.
MOST_DIGITS = 15
_SPACE = 32


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """A token from byte `begin` of its line to before `end`.

    `digits`: where its digits are, `decimals` of them behind the point; none where it is more than
    a sign, digits and a point.
    """

    begin: int
    end: int
    digits: tuple[int, ...]
    decimals: int
    is_negative: bool


def token_places(shape: bytes, table: bytes, delete: bytes) -> list[TokenPlace]:
    """The places of the tokens that `translate(table, delete).split()` makes of a line."""
    places: list[TokenPlace] = []
    current: list[int] = []
    for at, byte in enumerate(shape + b" "):
        if byte in delete:
            continue
        if table[byte] != _SPACE:
            current.append(at)
        elif current:
            places.append(_place(shape, current))
            current = []
    return places


def _place(shape: bytes, at: list[int]) -> TokenPlace:
    text = bytes([shape[i] for i in at])
    match = _PLAIN.fullmatch(text)
    digits = tuple([i for i in at if shape[i] == ord("0")])
    if match is None or len(digits) > MOST_DIGITS:
        return TokenPlace(at[0], at[-1] + 1, (), 0, False)
    return TokenPlace(at[0], at[-1] + 1, digits, len(match[3] or b""), bool(match[1]))

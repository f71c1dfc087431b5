"""Where the number tokens are in lines of one shape: always in the same places."""

from __future__ import annotations

import re

from trainer_runtime.core.records import dataclass

# A sign, digits with a point, an exponent, of which the digits are zeros.
NUMBER = re.compile(rb"(?P<sign>-?)0+(?:\.(?P<decimals>0*))?(?:[eE](?P<exponent>[-+]?)0{1,3})?")
# Of so many digits, the number without its point and the power of ten are exact floats: their
# quotient is what `float` makes of the text.
MOST_DIGITS = 15
_SPACE, _DIGIT = b" 0"


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """A token from byte `begin` of its line to before `end`.

    `digits`: where its digits are, `decimals` of them behind the point; none where it is more than
    a number of at most 15 digits. `exponent`: where the exponent's digits are.
    """

    begin: int
    end: int
    digits: tuple[int, ...] = ()
    decimals: int = 0
    is_negative: bool = False
    exponent: tuple[int, ...] = ()
    exponent_is_negative: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is digits alone."""
        return bool(self.digits) and not (self.decimals or self.is_negative or self.exponent)


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
    match = NUMBER.fullmatch(text)
    mantissa = len(text) if match is None or match["exponent"] is None else match.start("exponent")
    digits = tuple([i for i in at[:mantissa] if shape[i] == _DIGIT])
    if match is None or len(digits) > MOST_DIGITS:
        return TokenPlace(at[0], at[-1] + 1)
    return TokenPlace(
        at[0],
        at[-1] + 1,
        digits,
        len(match["decimals"] or b""),
        bool(match["sign"]),
        tuple([i for i in at[mantissa:] if shape[i] == _DIGIT]),
        match["exponent"] == b"-",
    )

"""In which language a sample of text is, as far as scripts and common words show it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from trainer_runtime.core.protocol.figures import share_text

# Words that make up a third of any prose, and that the others of these languages hardly have.
_COMMON = {
    "English": "the of and to in is that it was for with as on be this are by at from have not",
    "German": "der die und das nicht ist ein eine den von zu mit sich des auf dem für als auch es",
    "French": "le la les des et est une du dans que pour pas qui sur au avec ce il plus sont",
    "Spanish": "el la los las de que y en un una es por con no para se del su al como",
    "Italian": "il di che la e un una per non è con del della sono gli le si da in nel",
    "Portuguese": "o de que e do da em um uma para não com os no se na por mais dos as",
    "Dutch": "de het een en van is dat in te niet op zijn met voor er aan ook als maar om",
    "Swedish": "och att det som en på är av för med den till inte har om ett jag var de",
    "Polish": "w i na z się nie do to że jest o jak po co za od ale przez tym są",
    "Russian": "и в не на что с по это как из но он за от к то а его же у",
    "Ukrainian": "і в не на що з та до це як є але від його за у й про або вже",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_WORD = re.compile(r"[^\W\d_]+")
_MOST_CHARACTERS = 200_000
_LEAST_WORDS, _LEAST_LETTERS = 50, 100
# Prose of these languages has .25 to .5; source code and lists of names have less than .1.
_LEAST_SHARE, _LEAST_LEAD = 0.15, 1.3
_LEAST_OF_SCRIPT = 0.02
_MOST_SCRIPTS = 3
_SCRIPT_NAMES = {"CJK": "Chinese characters", "HIRAGANA": "Kana", "KATAKANA": "Kana"}


def languages_of(text: str) -> str | None:
    """Such as `99 % Latin script, English by its words`; None where there is too little of it."""
    text = text[:_MOST_CHARACTERS]
    scripts = Counter(_script(letter) for letter in text if letter.isalpha())
    total = scripts.total()
    if total < _LEAST_LETTERS:
        return None
    shares = [
        f"{share_text(count / total)} {name}"
        for name, count in scripts.most_common(_MOST_SCRIPTS)
        if count >= _LEAST_OF_SCRIPT * total
    ]
    language = _by_words(text)
    by_words = "language not recognised" if language is None else f"{language} by its words"
    lettered = {"Latin script", "Cyrillic script"} & set(scripts)
    return ", ".join([*shares, by_words] if lettered else shares)


def _by_words(text: str) -> str | None:
    words = Counter(word.lower() for word in _WORD.findall(text))
    total = words.total()
    if total < _LEAST_WORDS:
        return None
    shares = sorted(
        (
            (sum(words[word] for word in common) / total, language)
            for language, common in _WORDS.items()
        ),
        reverse=True,
    )
    (first, language), (second, _) = shares[:2]
    return language if first >= _LEAST_SHARE and first >= _LEAST_LEAD * second else None


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    """By the first word of the character's name, as Unicode gives it."""
    name = unicodedata.name(letter, "unnamed").split()[0]
    return _SCRIPT_NAMES.get(name, f"{name.capitalize()} script")

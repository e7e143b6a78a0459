"""In: names of symbols that are new, those known. Out: pairs that look like one symbol written in two ways."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

LOOK_ALIKES: Final = str.maketrans(
    "АВЕЅЗІЈКМНОРСТХҮабеѕіјкмнорсухүΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιονρτυ",
    "ABES3IJKMHOPCTXYabesijkmhopcyxyABEZHIKMNOPTYXaiovptu",
)
"""Cyrillic and Greek letters that print like Latin ones."""


def find_twins(fresh: Iterable[str], known: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs (new, other) that differ only by case, blanks, invisible signs or letters that look the same.

    Parameters
    ----------
    fresh
        Symbols not stored before.
    known
        All others; they may hold those of `fresh` too.
    """
    fresh = sorted(set(fresh))
    forms: dict[str, list[str]] = {}
    for name in sorted({*known} - {*fresh}) + fresh:
        forms.setdefault(_form(name), []).append(name)
    new = set(fresh)
    return [(names[n], names[0]) for names in forms.values() for n in range(1, len(names)) if names[n] in new]


def _form(name: str) -> str:
    """What two names have in common that print the same, or nearly."""
    text = unicodedata.normalize("NFKC", name.translate(LOOK_ALIKES))
    seen = "".join(sign for sign in text if unicodedata.category(sign) not in ("Cf", "Mn", "Zs"))
    return seen.translate(LOOK_ALIKES).casefold()

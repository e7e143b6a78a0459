"""In: the name a user gives to a feature. Out: nothing, or why it cannot be one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from klinepred.errors import ConfigError

FAMILIES: Final = ("price", "trend", "volatility", "volume", "clock", "cross")
"""Families of the built-in features: what the part before the double underscore says."""

NAME: Final = re.compile(r"[a-z][a-z0-9]*__[a-z0-9]+(_[a-z0-9]+)*")
MOST_LETTERS: Final = 64


def check_name(name: str, *, where: str) -> None:
    """Make sure that `name` is `family__what_param` with a family of the user's own.

    Parameters
    ----------
    where
        What messages begin with: the key of a pipeline, or a package.

    Raises
    ------
    ConfigError
        It is not, or the family is a built-in one.
    """
    if len(name) > MOST_LETTERS or not NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: name of a feature",
            expected=f"family__what_param, such as custom__spread_3: at most {MOST_LETTERS} small letters and digits,"
            " a double underscore after the family, single ones after that",
            got=repr(name) if len(name) <= MOST_LETTERS else f"{len(name)} characters: {name[:40]!r}…",
            do=f"rename it, to {_mended(name)} say",
        )
    family = name.partition("__")[0]
    if family in FAMILIES:
        raise ConfigError(
            f"{where}: name of a feature",
            expected=f"a family of your own: none of {', '.join(FAMILIES)}",
            got=f"{name}, as if it were built in",
            do=f"rename it, to custom__{name.partition('__')[2]} say",
        )


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The known word that `wrong` most likely stands for."""
    near = difflib.get_close_matches(wrong[:100].lower(), list(known), n=1, cutoff=0.75)
    return near[0] if near else None


def _mended(name: str) -> str:
    family, sign, rest = name[:MOST_LETTERS].lower().partition("__")
    words = re.findall(r"[a-z0-9]+", rest if sign else family)
    first = re.sub(r"[^a-z0-9]", "", family).lstrip("0123456789") if sign else ""
    first = first if first and first not in FAMILIES else "custom"
    return f"{first}__{'_'.join(words) or 'feature'}"[:MOST_LETTERS].rstrip("_")

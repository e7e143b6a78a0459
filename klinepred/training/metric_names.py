"""In: metric names with symbols of any market in them. Out: names that MLflow takes, and back; no two collide."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"_(?=x)|[^A-Za-z0-9_.\- ]")  # a literal `_x` would read as an escape


def clean_name(name: str) -> str:
    """The name MLflow is given: every character but ASCII letters, digits and `_ - . / blank` becomes `_xHEX_`.

    `mae/^GSPC` gives `mae/_x5e_GSPC`, `mae/EURUSD=X` gives `mae/EURUSD_x3d_X`; `val_loss` stays. Parts
    between slashes that could be taken for a path (empty, `.`, beginning with `..`) are spelled out too.
    `original_name` is the inverse.
    """
    return "/".join(_clean_part(part) for part in name.split("/"))


def original_name(cleaned: str) -> str:
    """The name whose `clean_name` is `cleaned`."""
    return re.sub(r"_x([0-9a-f]*)_", lambda found: chr(int(found[1], 16)) if found[1] else "", cleaned)


def _clean_part(part: str) -> str:
    if part == "":
        return "_x_"
    if part == "." or part.startswith(".."):
        return f"_x2e_{_clean_part(part[1:])}" if part[1:] else "_x2e_"
    return _UNSAFE.sub(lambda found: f"_x{ord(found[0]):x}_", part)

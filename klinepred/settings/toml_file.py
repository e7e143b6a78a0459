"""In: the path of a TOML file, or one value in TOML. Out: plain nested values, or a refusal before it costs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from klinepred.errors import ConfigError

MOST_BYTES: Final = 2_000_000
"""Of a file: some hundred thousand symbols. tomllib reads about 200,000 bytes a second."""
DEEPEST: Final = 32
"""Levels of sections, tables and lists in each other; settings have four."""
_TEXTS: Final = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)|\'\'\'[\s\S]*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'?|#[^\n]*+'
)
_LONG_KEY: Final = re.compile(rf"(?<![\w \t.-])[ \t]*+(?:[\w-]*+[ \t]*+\.[ \t]*+){{{DEEPEST}}}")
"""Both pass over a text once, whatever is in it."""


def read_toml(path: Path) -> dict[str, Any]:
    """The table in the file.

    Raises
    ------
    ConfigError
        It cannot be read, is too large or no TOML, or nests deeper than any setting does.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigError(
                f"{path}",
                expected=f"a TOML file of at most {MOST_BYTES:,} bytes",
                got=f"{size:,}",
                do="take out what is no setting",
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}", expected="a file that can be read", got=str(error.strerror), do="mend its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise _no_toml(path, error) from error
    try:
        if has_long_key(text):
            raise _too_deep(str(path))
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_toml(path, error) from error
    check_depth(table, where=str(path))
    return table


def value_of(text: str) -> Any:
    """TOML if it is, else the text itself: 3, true, 2026-01-02, ["A", "B"], but also cpu and 24/7."""
    if has_long_key(text):
        return text
    try:
        table = tomllib.loads(f"v = {text}")
    except (ValueError, RecursionError):
        return text
    return table["v"] if table.keys() == {"v"} else text


def has_long_key(text: str) -> bool:
    """Whether a key of many parts, `a.a.a.a…`, is in a text of TOML: tomllib would take hours over it."""
    return _LONG_KEY.search(_TEXTS.sub("", text)) is not None


def check_depth(table: dict[str, Any], *, where: str) -> None:
    """Refuse what nests deeper than `DEEPEST`, without recursion.

    Raises
    ------
    ConfigError
        It does.
    """
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list | tuple)
        ]
        if not level:
            return
    raise _too_deep(where)


def _too_deep(where: str) -> ConfigError:
    return ConfigError(
        where,
        expected=f"sections and lists of at most {DEEPEST} levels",
        got="deeper ones",
        do="take out what is no setting",
    )


def _no_toml(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"{path}",
        expected="a TOML file in UTF-8",
        got=f"text that is not: {str(error)[:200]}",
        do="mend that line",
    )

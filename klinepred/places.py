"""In: the folder of a workspace. Out: where its bars and artifacts lie instead of in it, by its klinepred.toml."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from klinepred.errors import ConfigError, UsageError
from klinepred.objects import ADDRESS

FILE: Final = "klinepred.toml"


@dataclass(frozen=True)
class Places:
    """Addresses on object storage.

    Attributes
    ----------
    store
        Of the bar store; None = the folder `data` of the workspace.
    artifacts
        Under which experiments that are made from now on keep their artifacts; None = `mlruns/artifacts`.
    """

    store: str | None = None
    artifacts: str | None = None

    def to_toml(self) -> str:
        """The text that `read_places` reads."""
        lines = (f'{one.name} = "{getattr(self, one.name)}"\n' for one in fields(self) if getattr(self, one.name))
        return "# Where this workspace keeps what does not lie in its folder; see docs/object-storage.md.\n" + "".join(
            lines
        )


def read_places(root: Path) -> Places:
    """What the file says; nothing lies elsewhere where there is none.

    Raises
    ------
    ConfigError
        It is not TOML, or has another key, or no such address.
    """
    path = root / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Places()
    except (OSError, ValueError) as error:
        raise _wrong(path, got=str(error)) from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, got=str(error)) from error
    known = [one.name for one in fields(Places)]
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise _wrong(path, got=f"{name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return Places(**{name: check_address(value, of=f"{name} in {path}") for name, value in table.items()})


def check_address(text: object, *, of: str) -> str:
    """`text` without a slash at its end, if it is an address; `of` says whose.

    Raises
    ------
    UsageError
        It is none.
    """
    address = str(text).rstrip("/")
    if not isinstance(text, str) or not ADDRESS.fullmatch(address):
        raise UsageError(
            of,
            expected="s3://BUCKET/PREFIX of letters, digits and _ . = -; credentials come from the environment",
            got="something with an @ in it" if "@" in address else repr(text)[:80],
            do="write it like s3://desk/bars",
        )
    return address


def _wrong(path: Path, *, got: str) -> ConfigError:
    return ConfigError(f"{path}", expected='lines such as store = "s3://desk/bars"', got=got, do="correct the file")

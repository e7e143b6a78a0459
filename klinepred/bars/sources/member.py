"""In: a file, the name of something inside it. Out: how it is called in messages, where its symbol may be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from klinepred.bars.sources.kinds import PACKED, PLAIN


@dataclass(frozen=True)
class Member:
    """A plain file of bars: one given by the user, or one inside an archive.

    Attributes
    ----------
    outer
        The file that the user named.
    inner
        Its name inside `outer`, never used as a path; empty where `outer` is plain, or holds just one stream.
    spot
        Its place in the list of an archive, which may hold one name twice.
    """

    outer: Path
    inner: str = ""
    spot: int = 0

    @property
    def where(self) -> str:
        """Its path, for messages."""
        return f"{printable(str(self.outer))}/{shown(self.inner)}" if self.inner else printable(str(self.outer))

    @property
    def label(self) -> str:
        """Its name, for remarks and provenance: `AAPL.csv`, `bars.zip/AAPL.csv`."""
        name = printable(self.outer.name)
        return f"{name}/{shown(self.inner)}" if self.inner else name

    @property
    def named(self) -> Path:
        """The name that may say the symbol: without folders of an archive and without the ending of a packed file."""
        if self.inner:
            return Path(PurePosixPath(self.inner.replace("\\", "/")).name)
        if self.outer.suffix.lower() not in PACKED:
            return self.outer
        bare = self.outer.with_suffix("")
        return bare if bare.suffix.lower() in PLAIN else bare.with_name(bare.name + ".csv")


def shown(name: str) -> str:
    """A name from inside an archive, safe to print, and not too long for a line."""
    return printable(name)[:200]


def printable(name: str) -> str:
    """A name, safe to print and to store: without signs that command a terminal, and bytes that are no text."""
    return name if name.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)

"""In: the words a pipeline or a bundle has for its features. Out: `Recipe`: how to put the set together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group `klinepred.features`; all but its name is empty until it is loaded.

    Attributes
    ----------
    code
        Digest of the Python files that declare it: those of its package. An installation that is still being worked
        on changes without another version.
    """

    name: str
    distribution: str = ""
    version: str = ""
    code: str = ""

    @property
    def origin(self) -> str:
        """Distribution, version and code."""
        return f"{self.distribution} {self.version} (code {self.code})"


@dataclass(frozen=True)
class Recipe:
    """What a feature set is put together from.

    Attributes
    ----------
    base
        Name of a built-in set.
    exclude
        Names, or whole families, of its features that are left out.
    custom
        Name and formula of each feature in SQL, the formula in one spelling.
    plugins
        Entry points whose features follow.
    """

    base: str
    exclude: tuple[str, ...] = ()
    custom: tuple[tuple[str, str], ...] = ()
    plugins: tuple[Plugin, ...] = ()

    @property
    def plain(self) -> Recipe:
        """What the pipeline asked for: without the versions that were found."""
        return Recipe(self.base, self.exclude, self.custom, tuple(Plugin(one.name) for one in self.plugins))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "base": self.base,
            "exclude": list(self.exclude),
            "custom": [{"name": name, "sql": text} for name, text in self.custom],
            "plugins": [
                {"name": one.name, "distribution": one.distribution, "version": one.version, "code": one.code}
                for one in self.plugins
            ],
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Recipe:
        """The inverse of `to_dict`."""
        return cls(
            base=str(table["base"]),
            exclude=tuple(str(name) for name in table["exclude"]),
            custom=tuple((str(one["name"]), str(one["sql"])) for one in table["custom"]),
            plugins=tuple(
                Plugin(str(one["name"]), str(one["distribution"]), str(one["version"]), str(one["code"]))
                for one in table["plugins"]
            ),
        )

"""In: features that packages declare, and what went wrong. Out: an error that names the packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from klinepred.errors import FeatureError, KlinepredError


@contextmanager
def blaming_packages(origins: Mapping[str, str]) -> Iterator[None]:
    """Failures inside become a FeatureError that names the packages of `origins` (by feature), if there are any."""
    try:
        yield
    except Exception as error:
        if not origins or isinstance(error, KlinepredError | MemoryError):
            raise
        names = list(origins)
        packages = ", ".join(sorted(set(origins.values())))
        raise FeatureError(
            f"features of {packages}",
            expected=f"{', '.join(names[:10])} to be computed on these bars",
            got=one_line(error),
            do=f"tell the authors of {packages}, or leave them out of features.plugins",
        ) from error


def one_line(error: BaseException) -> str:
    """Kind and first words of what foreign code raised."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:200]}" if words else type(error).__name__

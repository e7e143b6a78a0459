"""In: what was expected, what came instead, what to do. Out: exceptions that say exactly that, with an exit code."""

from __future__ import annotations

from typing import ClassVar

from klinepred.masked import masked


class KlinepredError(Exception):
    """A failure the user can act on; its text has the parts *expected*, *got* and *do this*, and no passwords.

    Parameters
    ----------
    summary
        One line that names the thing at fault.
    expected, got, do
        What klinepred needed, what it found, and the next step for the user.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, summary: str, *, expected: str, got: str, do: str) -> None:
        self.summary = masked(summary)
        self.expected = masked(expected)
        self.got = masked(got)
        self.do = masked(do)
        super().__init__(self.summary)

    def __str__(self) -> str:
        return f"{self.summary}\n  expected: {self.expected}\n  got:      {self.got}\n  do this:  {self.do}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.summary, self.expected, self.got, self.do)


def _rebuild(kind: type[KlinepredError], summary: str, expected: str, got: str, do: str) -> KlinepredError:
    return kind(summary, expected=expected, got=got, do=do)


class UsageError(KlinepredError):
    """The command was typed in a way that cannot be carried out (a path that does not exist included)."""

    exit_code = 2


class ConfigError(UsageError):
    """A pipeline file, a preset or an override is not valid."""


class CalendarError(UsageError):
    """A calendar, trading hours or a time zone is not known, or does not cover the dates asked for."""


class SourceError(KlinepredError):
    """A source of bars (file, Yahoo, exchange) could not deliver, or delivered something unreadable."""


class BarsError(KlinepredError):
    """A frame of bars breaks a guarantee of the type `Bars`."""


class StoreError(KlinepredError):
    """The bar store is absent, empty, locked, or cannot be written."""


class FeatureError(KlinepredError):
    """A feature is not known, or cannot be computed on these bars."""


class DatasetError(KlinepredError):
    """The bars are not enough, or not of the kind, that training or prediction needs."""


class ModelError(KlinepredError):
    """A bundle is absent, foreign, damaged, or does not fit the features at hand."""


class TrainingError(KlinepredError):
    """Training could not start or go on."""


def out_of_memory(error: BaseException) -> str | None:
    """What could not be had, where `error` says that memory ran out: Python's, numpy's or torch's; None for any other.

    torch has a class of its own for a GPU, and a plain RuntimeError for a CPU; neither needs torch to be known.
    """
    lines = str(error).strip().splitlines()
    told = next((line.strip() for line in lines if "allocate" in line.lower()), lines[0].strip() if lines else "")
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return told[-300:] or "none left"
    if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
        return told[max(0, told.find("DefaultCPUAllocator")) :][:300]
    return None

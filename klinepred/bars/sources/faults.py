"""In: an answer of a server without bars. Out: one of three errors, by what may help: waiting, asking again, no."""

from __future__ import annotations

from typing import Final

from polars.exceptions import PolarsError

from klinepred.bars.delivery import Failure

MALFORMED: Final = (
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    PolarsError,
)
"""What a client raises that trusted an answer to have the form agreed on."""


class BusyError(Exception):
    """The server said: too many requests.

    Attributes
    ----------
    after_s
        How long it said to wait, seconds; 0 = it did not say.
    """

    def __init__(self, text: str = "", *, after_s: float = 0.0) -> None:
        super().__init__(text)
        self.after_s = after_s


class FaultError(Exception):
    """An answer that may be better at the next try.

    Attributes
    ----------
    away
        The server itself could not be reached or is down, whatever the symbol.
    """

    def __init__(self, text: str, *, away: bool = False) -> None:
        super().__init__(text)
        self.away = away


class RefusedError(Exception):
    """An answer that will not change; carries the failure.

    Attributes
    ----------
    empty
        The server knows the symbol and has no bar of it in the range.
    """

    def __init__(self, failure: Failure, *, empty: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.empty = empty

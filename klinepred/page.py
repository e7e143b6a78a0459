"""In: functions that show values. Out: jinja's environment for all pages: every text escaped, every sign in it seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jinja2 import Environment

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""Signs that show nothing, turn the direction of what follows, or are half of one; tabs and ends of lines stay."""


def house(**filters: Callable[..., Any]) -> Environment:
    """The environment; templates are named from klinepred's own folder on (`audit/report.html.j2`)."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("klinepred", "."),  # the look is shared: look.css
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    made.filters.update(filters)
    return made


def _seen(value: Any) -> Any:
    """A name with a mark of direction in it cannot pass for another one; what is markup already is left alone."""
    if type(value) is not str:
        return value
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), value)

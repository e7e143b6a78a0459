"""In: addresses of run stores, messages about them. Out: the same without passwords, fit to be shown and kept."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s'\"]*@")
_WORDS: Final = re.compile(r"([?&;](?:\w{0,30}(?:password|passwd|pwd|token|secret|key))=)[^&;\s'\"]+", re.IGNORECASE)


def masked(text: str) -> str:
    """`text` with `***` in place of whatever stands between `://` and `@`, and of passwords among parameters."""
    return _WORDS.sub(r"\1***", _USER.sub(r"\1***@", text))

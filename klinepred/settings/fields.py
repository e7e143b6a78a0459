"""In: nothing. Out: `Settings`, what all settings share, and the kinds of value they hold."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_number(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("a date, such as 2026-01-02")  # noqa: TRY004  # pydantic wants ValueError here
    return value


Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]


Day = Annotated[date, Field(strict=False), BeforeValidator(_no_number)]
"""A date of TOML, or its text as JSON keeps it."""


Texts = Annotated[tuple[str, ...], Field(strict=False)]
"""A list of TOML or JSON."""


class Settings(BaseModel):
    """What all settings share: frozen, nothing unknown, numbers finite, no value bent into another type."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

"""In: lines such as `train.lr=1e-4..1e-2|log`. Out: `Axis`, one setting and where it is searched; `TuneSettings`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from klinepred.settings.fields import Settings, Texts
from klinepred.settings.learning import ModelSettings, TrainSettings

Plain = bool | int | float | str

SEARCHED: Final = {
    "model": ("hidden", "layers", "head", "dropout", "layer_norm", "skip"),
    "train": (
        *("epochs", "batch", "lr", "weight_decay", "schedule", "warmup", "clip", "clip_norm", "clip_value", "ema"),
    ),
}
"""Settings that change how well the same rows are learned, and leave the meaning of a validation loss alone."""
WHY_NOT: Final = {
    "train.seed": "the best of several seeds is luck: train.ensemble takes the mean of them",
    "train.ensemble": "more networks are better and dearer: search one network, then set train.ensemble",
    "train.loss": "losses of two kinds cannot be compared",
    "model.quantiles": "losses of other quantiles cannot be compared",
    "model.preset": "a preset is a set of values: search model.hidden, model.layers …",
    "model.flatten": "it decides how sequences are cut: search each cut by itself",
    "dataset": "losses on other rows or labels cannot be compared: tune a pipeline for each",
    "features": "inputs are shared by all trials: tune a pipeline for each",
}
FORM: Final = "SECTION.KEY=LOW..HIGH, SECTION.KEY=LOW..HIGH|log, or SECTION.KEY=A,B,C"


@dataclass(frozen=True)
class Axis:
    """One setting and where it is searched.

    Attributes
    ----------
    key
        `train.lr`.
    low, high
        Ends of a range, both included; None where there are `choices`. Whole numbers for a setting that is one.
    log
        Whether the logarithm is spread evenly over the range.
    choices
        The values of a list.
    """

    key: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Plain, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the setting is a whole number."""
        return _kind(self.key) is int

    @property
    def ends(self) -> tuple[Plain, ...]:
        """Values that must be valid for all of the axis to be."""
        return self.choices or tuple(end for end in (self.low, self.high) if end is not None)

    def holds(self, value: Any) -> bool:
        """Whether `value` lies on it."""
        if self.choices:
            return value in self.choices
        return self.low is not None and self.high is not None and self.low <= value <= self.high


def parse_axis(text: str) -> Axis:
    """An axis from its line.

    Raises
    ------
    ValueError
        It is none; the message says what is wrong.
    """
    key, sign, raw = (part.strip() for part in text.partition("="))
    if not sign or not raw:
        raise ValueError(f"a line like {FORM}, got {text!r}")
    section, _, name = key.partition(".")
    if name not in SEARCHED.get(section, ()):
        why = WHY_NOT.get(key) or WHY_NOT.get(section)
        have = ", ".join(f"{part}.{one}" for part, names in SEARCHED.items() for one in names)
        raise ValueError(f"one of {have}; {key} is not searched" + (f": {why}" if why else ""))
    kind, (body, bar, scale) = _kind(key), (part.strip() for part in raw.partition("|"))
    span = re.fullmatch(r"(.+?)\.\.(.+)", body)
    if span is None:
        values = tuple(_value(part.strip(), kind, key) for part in body.split(",") if part.strip())
        if bar or len(set(values)) < 2:
            raise ValueError(f"{key} as two values or more, or as LOW..HIGH, got {raw!r}")
        return Axis(key, choices=values)
    if kind not in (int, float):
        raise ValueError(f"{key} as a list of values, since it is no number, got {raw!r}")
    low, high = (float(_value(part.strip(), kind, key)) for part in span.groups())
    if low >= high or (bar and (scale != "log" or low <= 0)):
        raise ValueError(f"{key} with LOW below HIGH, and above 0 on a log scale, got {raw!r}")
    return Axis(key, int(low) if kind is int else low, int(high) if kind is int else high, bool(bar))


def _kind(key: str) -> type:
    section, _, name = key.partition(".")
    fields = (ModelSettings if section == "model" else TrainSettings).model_fields
    kinds: tuple[type, ...] = (bool, int, float)
    kind: Any = fields[name].annotation
    return kinds[kinds.index(kind)] if kind in kinds else str


def _value(text: str, kind: type, key: str) -> Plain:
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        return text.strip("\"'") if kind is str else int(text) if kind is int else float(text)
    except ValueError:
        kinds = {int: "a whole number", float: "a number", bool: "true or false"}
        raise ValueError(f"{key} to be {kinds[kind]}, got {text!r}") from None


class TuneSettings(Settings):
    """The search of `klinepred tune`; see docs/tuning.md."""

    trials: int = Field(20, ge=1, le=10_000)
    """Configurations that are tried, pruned ones included."""
    space: Texts = ()
    """What is searched: lines such as "train.lr=1e-4..1e-2|log"; empty = a range around the pipeline's own values."""
    pruner: Literal["median", "none"] = "median"
    """Whether a trial ends early whose validation loss lies above the median of the others at the same epoch."""
    grace: int = Field(2, ge=1, le=100_000)
    """Epochs of a trial before it may be pruned."""

    @field_validator("space")
    @classmethod
    def _readable(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        keys = [parse_axis(line).key for line in lines]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ValueError(f"each setting once, got {', '.join(twice)} twice")
        return lines

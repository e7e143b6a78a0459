"""In: nothing. Out: settings of the features and of the dataset: targets, split, sequences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from klinepred.settings.fields import Day, Fraction, Settings, Texts


class FeatureSettings(Settings):
    """Which features: a built-in set, and the user's own; see docs/features-custom.md."""

    set: Literal["f50"] = "f50"
    exclude: Texts = ()
    """Features of the set, or whole families of it, that are left out."""
    custom: dict[str, str] = Field(default_factory=dict)
    """By name, a SQL expression over the bars of one symbol; read and checked with the file."""
    plugins: Texts = ()
    """Entry points of the group `klinepred.features` of installed packages."""


class SplitSettings(Settings):
    """Train, validation and test by date, once or as a walk-forward; the dates win over the shares where given.

    Shares are of the labelled sessions. The test part is what follows `validation_end`. `embargo` sessions at the head
    of validation and of test carry no label, nor part of one. In a walk-forward the test part is cut into `folds`
    spans of as many sessions; each is tested by a model of its own, trained and validated on what lies before it.
    """

    train: Fraction = 0.7
    validation: Fraction = 0.15
    train_end: Day | None = None
    validation_end: Day | None = None
    embargo: int = Field(0, ge=0, le=250)
    folds: int = Field(1, ge=1, le=500)
    """1 = one split; more = a walk-forward."""
    scheme: Literal["expanding", "rolling"] = "expanding"
    """Whether the train part of a later fold keeps its beginning, or its length (folds > 1)."""

    @model_validator(mode="after")
    def _room_for_test(self) -> SplitSettings:
        if (self.train_end is None) != (self.validation_end is None):
            raise ValueError("train_end and validation_end go together")
        if self.train_end is not None and self.validation_end is not None and self.train_end >= self.validation_end:
            raise ValueError(f"train_end {self.train_end} must lie before validation_end {self.validation_end}")
        if self.train_end is None and self.train + self.validation >= 1.0:
            raise ValueError(
                f"train + validation must leave room for a test part, got {self.train + self.validation:g}"
            )
        return self


class DatasetSettings(Settings):
    """Targets, split and the way sequences are cut."""

    horizon: int = Field(1, ge=1, le=78)
    target: Literal["relative", "raw"] = "relative"
    steps: Literal["all", "within-session"] = "all"
    cut: Literal["session", "window"] = "session"
    burn_in: int = Field(26, ge=0, le=288)
    """Bars before a session that lead the state in, without loss (cut = "session")."""
    window: int = Field(78, ge=2, le=2048)
    """Length of a sequence with one label at its end (cut = "window")."""
    label_clip: float = Field(6.0, gt=0.0, le=1e30)
    """Training labels are clipped at this many units of volatility; metrics never are, unless they say so."""
    feature_clip: float = Field(6.0, gt=0.0, le=1e30)
    """Scaled features are clipped at this many train standard deviations."""
    split: SplitSettings = SplitSettings()

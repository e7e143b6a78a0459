"""In: nothing. Out: the frozen, strict models of every setting a pipeline can have, with defaults and ranges."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


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


class SimulateSettings(Settings):
    """The simulated market (`klinepred.bars.sources.simulate`); model and sources in `docs/simulated-market.md`."""

    seed: int = Field(7, ge=0)
    symbols: int = Field(12, ge=1, le=100_000)
    start: Day = date(2026, 1, 2)
    end: Day = date(2026, 6, 30)
    """Last session, inclusive."""
    ic: float = Field(0.06, ge=0.0, le=0.5)
    """Information coefficient planted in the next bar: correlation of the best forecast with the return; 0 = noise."""
    bounce: float = Field(0.0, ge=0.0, le=0.01)
    """Half bid-ask spread as a share of the price; closes jump between bid and ask."""
    decay: float = Field(0.5, ge=0.0, le=0.95)
    """Weight of a bar in the planted signal relative to the bar after it."""
    volume_tilt: float = Field(0.5, ge=0.0, le=2.0)
    """How much more a bar of abnormal volume (+1 standard deviation) counts in the planted signal; 0 = linear."""
    volatility: float = Field(0.018, ge=1e-4, le=0.2)
    """Standard deviation of the daily log return, close to close, of the average symbol."""
    market: float = Field(0.25, ge=0.0, le=0.9)
    """Share of that variance that the common market factor brings; 0 with a single symbol."""
    overnight: float = Field(0.25, ge=0.0, le=0.9)
    """Share of that variance that falls on the hours between two sessions; 0 where trading never stops."""
    zero_volume: float = Field(0.0, ge=0.0, le=0.5)
    """Share of bars, at random, whose volume is 0 (prices move all the same, as Yahoo has it)."""

    @model_validator(mode="after")
    def _in_order(self) -> SimulateSettings:
        if self.start > self.end:
            raise ValueError(f"start {self.start} must not lie after end {self.end}")
        return self


class DataSettings(Settings):
    """Which bars, from where, by which clock."""

    source: Literal["yahoo", "files", "exchange", "simulate"] = "yahoo"
    exchange: str | None = None
    """Name that ccxt gives the exchange, such as "binance" (source = "exchange")."""
    symbols: Texts = ()
    calendar: str = "XNYS"
    hours: Literal["regular", "extended"] = "regular"
    tz: str | None = None
    stamp: Literal["open", "close"] | None = None
    """Stamps of files are opens or ends of bars; None = as the vendor writes them, else opens."""
    vendor: str = "auto"
    start: Day | None = None
    end: Day | None = None
    paths: Texts = ()
    rescale: Literal["confirmed", "always", "never"] = "confirmed"
    """When stored bars follow received ones to another basis (a split, pence for pounds): where the source itself tells
    of the split, where the overlap shows it plainly, or not at all; otherwise the symbol is refused."""
    simulate: SimulateSettings = SimulateSettings()

    @model_validator(mode="after")
    def _in_order(self) -> DataSettings:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError(f"start {self.start} must not lie after end {self.end}")
        return self


class FeatureSettings(Settings):
    """Which features: a built-in set, and the user's own; see docs/features-custom.md."""

    set: Literal["f50"] = "f50"
    exclude: Texts = ()
    """Features of the set, or whole families of it, that are left out."""
    custom: dict[str, str] = {}
    """By name, a SQL expression over the bars of one symbol; read and checked with the file."""
    plugins: Texts = ()
    """Entry points of the group `klinepred.features` of installed packages."""


class SplitSettings(Settings):
    """Train, validation and test by date; the dates win over the shares where given.

    Shares are of the usable sessions. The test part is what follows `validation_end`. `embargo` sessions at the head
    of validation and of test carry no label.
    """

    train: Fraction = 0.7
    validation: Fraction = 0.15
    train_end: Day | None = None
    validation_end: Day | None = None
    embargo: int = Field(0, ge=0, le=250)

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
    burn_in: int = Field(0, ge=0, le=288)
    """Bars before a session that lead the state in, without loss (cut = "session")."""
    window: int = Field(78, ge=2, le=2048)
    """Length of a sequence with one label at its end (cut = "window")."""
    label_clip: float = Field(6.0, gt=0.0)
    """Training labels are clipped at this many units of volatility; metrics never are, unless they say so."""
    feature_clip: float = Field(6.0, gt=0.0)
    """Scaled features are clipped at this many train standard deviations."""
    split: SplitSettings = SplitSettings()


class ModelSettings(Settings):
    """The network. `preset` names a file of `models/presets`; keys given here win over it."""

    preset: str = "lstm-3x256"
    hidden: int = Field(256, ge=1, le=8192)
    layers: int = Field(3, ge=1, le=16)
    head: int = Field(128, ge=1, le=8192)
    """Width between the two fully connected layers."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)


class TrainSettings(Settings):
    """The loop."""

    epochs: int = Field(6, ge=1, le=100_000)
    batch: int = Field(64, ge=1, le=65_536)
    """Sequences per step."""
    lr: float = Field(1e-3, gt=0.0)
    weight_decay: float = Field(1e-2, ge=0.0)
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the planned steps over which the learning rate rises linearly."""
    clip: Literal["norm", "value"] = "norm"
    clip_norm: float = Field(1.0, gt=0.0)
    clip_value: float = Field(0.5, gt=0.0)
    loss: Literal["mse", "huber"] = "mse"
    ema: float = Field(0.0, ge=0.0, lt=1.0)
    """Decay of the moving average of the weights that validation and the bundle use; 0 = off."""
    patience: int = Field(3, ge=0)
    """Epochs without a better validation loss before the run stops; 0 = never."""
    seed: int = 7
    amp: bool = False
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    init_scale: float = Field(65_536.0, gt=0.0)
    growth_interval: int = Field(2000, ge=1)
    device: str = "auto"
    log_every: int = Field(10, ge=1)
    """Steps between two records of the flight recorder."""


class EvaluateSettings(Settings):
    """The verdict."""

    cost_bps: float = Field(1.0, ge=0.0)
    """Cost of one side of a trade, in basis points of the traded value."""
    bootstrap: int = Field(400, ge=50, le=100_000)
    seed: int = 7


class Pipeline(Settings):
    """One complete run: data, features, dataset, model, training, evaluation."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = ""
    data: DataSettings = DataSettings()
    features: FeatureSettings = FeatureSettings()
    dataset: DatasetSettings = DatasetSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    def ignored(self) -> list[str]:
        """Settings that were given but have no effect beside the others, each with the reason."""
        out = []
        given = self.dataset.model_fields_set
        if "burn_in" in given and self.dataset.cut == "window":
            out.append('dataset.burn_in is ignored: cut = "window" reads exactly dataset.window bars')
        if "window" in given and self.dataset.cut == "session":
            out.append('dataset.window is ignored: cut = "session" reads whole sessions')
        if self.dataset.split.train_end is not None and {"train", "validation"} & self.dataset.split.model_fields_set:
            out.append("dataset.split.train and .validation are ignored: train_end and validation_end are given")
        return [*self._ignored_data(), *out, *self._ignored_train()]

    def _ignored_data(self) -> list[str]:
        idle = {
            "yahoo": ("paths", "tz", "stamp", "vendor", "exchange", "simulate"),
            "files": ("exchange", "simulate"),
            "exchange": ("paths", "tz", "stamp", "vendor", "simulate"),
            "simulate": ("symbols", "start", "end", "paths", "tz", "stamp", "vendor", "exchange"),
        }[self.data.source]
        return [
            f'data.{name} is ignored: it has no effect on source = "{self.data.source}"'
            for name in idle
            if name in self.data.model_fields_set
        ]

    def _ignored_train(self) -> list[str]:
        out = []
        train, given = self.train, self.train.model_fields_set
        if "clip_value" in given and train.clip == "norm":
            out.append('train.clip_value is ignored: clip = "norm"')
        if "clip_norm" in given and train.clip == "value":
            out.append('train.clip_norm is ignored: clip = "value"')
        if "warmup" in given and train.warmup and train.schedule == "constant":
            out.append('train.warmup is ignored: schedule = "constant"')
        if train.amp and train.precision == "fp32":
            out.append('train.amp is ignored: precision = "fp32" forbids mixed precision')
        if train.precision in ("fp32", "bf16") or (train.precision == "auto" and not train.amp):
            out += [
                f"train.{name} is ignored: no gradient is scaled without fp16"
                for name in ("init_scale", "growth_interval")
                if name in given
            ]
        return out

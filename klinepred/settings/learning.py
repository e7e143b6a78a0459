"""In: nothing. Out: settings of the network, of the training loop and of the verdict."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from klinepred.settings.fields import Fraction, Settings


class ModelSettings(Settings):
    """The network. `preset` names a file of `models/presets`; keys given here win over it."""

    preset: str = "lstm-3x256"
    hidden: int = Field(256, ge=1, le=8192)
    layers: int = Field(3, ge=1, le=16)
    head: int = Field(128, ge=1, le=8192)
    """Width between the two fully connected layers."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Between the LSTM layers and between the two fully connected ones, in training only."""
    layer_norm: bool = False
    """Normalise the last LSTM layer's output at every step before the fully connected layers read it."""
    skip: bool = False
    """A linear path from the features of a step straight to its outputs, zero at the start."""
    flatten: int = Field(0, ge=0, le=2048)
    """Steps of a window that the first fully connected layer reads at once; 0 = it reads one step at a time."""
    quantiles: Annotated[tuple[Fraction, ...], Field(strict=False, max_length=99)] = ()
    """Levels of the quantiles the network gives beside the expected value, rising, such as [0.1, 0.5, 0.9]."""

    @model_validator(mode="after")
    def _rising(self) -> ModelSettings:
        if any(low >= high for low, high in zip(self.quantiles, self.quantiles[1:], strict=False)):
            raise ValueError(f"quantiles must rise, got {list(self.quantiles)}")
        return self


class TrainSettings(Settings):
    """The loop."""

    epochs: int = Field(6, ge=1, le=100_000)
    batch: int = Field(64, ge=1, le=65_536)
    """Sequences per step."""
    lr: float = Field(1e-3, gt=0.0, le=1e30)
    weight_decay: float = Field(1e-2, ge=0.0, le=1e30)
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the planned steps over which the learning rate rises linearly."""
    clip: Literal["norm", "value"] = "norm"
    clip_norm: float = Field(1.0, gt=0.0, le=1e30)
    clip_value: float = Field(0.5, gt=0.0, le=1e30)
    loss: Literal["mse", "huber", "quantile"] = "mse"
    """Of the expected value: squared error or Huber's; "quantile": squared error plus the pinball loss of the
    quantiles of `model.quantiles`."""
    ema: float = Field(0.0, ge=0.0, lt=1.0)
    """Decay of the moving average of the weights that validation and the bundle use; 0 = off."""
    recalibrate: bool = False
    """Scale the finished network's expected value by its slope on the validation part (0.05 to 2): size, not order."""
    ensemble: int = Field(1, ge=1, le=100)
    """Networks trained one after another with the seeds seed, seed + 1, …; the model answers with their mean."""
    patience: int = Field(3, ge=0)
    """Epochs without a better validation loss before the run stops; 0 = never."""
    seed: int = Field(7, ge=0, le=2**63)
    amp: bool = False
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    init_scale: float = Field(65_536.0, ge=1e-18, le=1e38)
    growth_interval: int = Field(2000, ge=1)
    on_overflow: Literal["stop", "fallback"] = "stop"
    """When numbers stay infinite: end the run, or go on in the next precision with more range (bf16, then fp32)."""
    overflow_steps: int = Field(25, ge=1, le=100)
    """Steps in a row that the GradScaler may skip before that: after 25 the scale has fallen from 2^16 to 2^-9."""
    tf32: bool = False
    """Let float32 products be TF32 on CUDA: faster, 10 bits of mantissa instead of 23."""
    device: str = "auto"
    log_every: int = Field(10, ge=1)
    """Steps between two records of the flight recorder."""
    save_minutes: float = Field(5.0, gt=0.0)
    """Most minutes within an epoch between two checkpoints; one is written after every epoch in any case."""


class EvaluateSettings(Settings):
    """The verdict."""

    cost_bps: float = Field(1.0, ge=0.0)
    """Cost of one side of a trade, in basis points of the traded value."""
    bootstrap: int = Field(400, ge=50, le=100_000)
    seed: int = Field(7, ge=0, le=2**32 - 1)

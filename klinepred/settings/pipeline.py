"""In: nothing. Out: `Pipeline`, all settings of one complete run, and which of them are ignored."""

from __future__ import annotations

from pydantic import Field

from klinepred.settings.data import DataSettings
from klinepred.settings.fields import Settings
from klinepred.settings.inputs import DatasetSettings, FeatureSettings
from klinepred.settings.learning import EvaluateSettings, ModelSettings, TrainSettings
from klinepred.settings.search import TuneSettings


class Pipeline(Settings):
    """One complete run: data, features, dataset, model, training, evaluation, search."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = ""
    data: DataSettings = DataSettings()
    features: FeatureSettings = FeatureSettings()
    dataset: DatasetSettings = DatasetSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    tune: TuneSettings = TuneSettings()

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
        if "scheme" in self.dataset.split.model_fields_set and self.dataset.split.folds == 1:
            out.append("dataset.split.scheme is ignored: folds = 1 is a single split, no walk-forward")
        if "grace" in self.tune.model_fields_set and self.tune.pruner == "none":
            out.append('tune.grace is ignored: pruner = "none" lets every trial run to its end')
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

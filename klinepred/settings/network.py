"""In: settings of network, dataset and loop. Out: nothing, or a refusal of what cannot work together."""

from __future__ import annotations

from klinepred.errors import ConfigError
from klinepred.settings.inputs import DatasetSettings
from klinepred.settings.learning import ModelSettings, TrainSettings


def check_network(model: ModelSettings, dataset: DatasetSettings, train: TrainSettings) -> None:
    """Refuse a network that the dataset cannot feed, and outputs that no loss trains.

    Raises
    ------
    ConfigError
        `flatten` without windows of exactly that length; quantiles without their loss, or that loss without quantiles.
    """
    steps = model.flatten
    if steps and (dataset.cut != "window" or dataset.window != steps):
        got = f'cut = "window" of {dataset.window} bars' if dataset.cut == "window" else f'cut = "{dataset.cut}"'
        raise ConfigError(
            f"model.flatten = {steps} (preset {model.preset}): the network reads {steps} bars at once",
            expected=f'dataset.cut = "window" with dataset.window = {steps}',
            got=got,
            do=f"add --set dataset.cut=window --set dataset.window={steps}, or choose a preset without flatten",
        )
    if model.quantiles and train.loss != "quantile":
        raise ConfigError(
            f"model.quantiles = {list(model.quantiles)}",
            expected='train.loss = "quantile", the only loss that trains these outputs',
            got=f'train.loss = "{train.loss}"',
            do="add --set train.loss=quantile, or leave model.quantiles out",
        )
    if train.loss == "quantile" and not model.quantiles:
        raise ConfigError(
            'train.loss = "quantile"',
            expected="a network with quantiles to train",
            got="model.quantiles = []",
            do='add --set "model.quantiles=[0.1, 0.5, 0.9]", or use --set train.loss=mse',
        )

"""In: nothing. Out: the frozen, strict models of every setting a pipeline can have, with defaults and ranges."""

from klinepred.settings.data import DataSettings, SimulateSettings
from klinepred.settings.fields import Settings
from klinepred.settings.inputs import DatasetSettings, FeatureSettings, SplitSettings
from klinepred.settings.learning import EvaluateSettings, ModelSettings, TrainSettings
from klinepred.settings.pipeline import Pipeline
from klinepred.settings.search import TuneSettings

__all__ = [
    "DataSettings",
    "DatasetSettings",
    "EvaluateSettings",
    "FeatureSettings",
    "ModelSettings",
    "Pipeline",
    "Settings",
    "SimulateSettings",
    "SplitSettings",
    "TrainSettings",
    "TuneSettings",
]

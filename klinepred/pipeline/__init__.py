"""In: a pipeline and a workspace. Out: its steps: ingest, audit, train, evaluate, predict; each can be run alone."""

from klinepred.pipeline.data import build_dataset, build_folds, dataset_of, describe_dataset, refresh_features
from klinepred.pipeline.judge import GradedModel, compare_models, evaluate_model, predict_bars
from klinepred.pipeline.learn import (
    Trained,
    audit_model,
    audit_pipeline,
    resumed_pipeline,
    train_model,
    try_precisions,
)
from klinepred.pipeline.rounds import Round
from klinepred.pipeline.scheduled import run_round
from klinepred.pipeline.symbols import choose_symbols
from klinepred.pipeline.walk import train_folds

__all__ = [
    "GradedModel",
    "Round",
    "Trained",
    "audit_model",
    "audit_pipeline",
    "build_dataset",
    "build_folds",
    "choose_symbols",
    "compare_models",
    "dataset_of",
    "describe_dataset",
    "evaluate_model",
    "predict_bars",
    "refresh_features",
    "resumed_pipeline",
    "run_round",
    "train_folds",
    "train_model",
    "try_precisions",
]

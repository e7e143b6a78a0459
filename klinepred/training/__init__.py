"""In: a dataset and settings. Out: a trained bundle, a checkpoint and an MLflow run."""

"""In: a bundle. Out: an MLflow pyfunc that answers as `klinepred predict` does."""

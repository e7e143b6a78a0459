"""In: a bundle and a dataset. Out: the verdict beside naive baselines, and the report."""

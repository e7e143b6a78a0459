"""In: a pipeline, a space of settings, one dataset. Out: trials on validation, by one study whoever computes them."""

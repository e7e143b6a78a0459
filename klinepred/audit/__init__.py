"""In: stored bars, a pipeline or a model. Out: the leak certificate: that nothing here sees the future."""

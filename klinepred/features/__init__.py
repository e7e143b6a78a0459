"""In: bars. Out: the 50 causal features."""

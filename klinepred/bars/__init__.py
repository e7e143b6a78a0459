"""In: raw rows from a source. Out: checked bars in the store of a workspace."""

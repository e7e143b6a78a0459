"""In: features and closes. Out: targets, parts, a scaler and sequences."""

"""In: sequences of scaled features. Out: predictions of the LSTM; the bundle that carries it."""

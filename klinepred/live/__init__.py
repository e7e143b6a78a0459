"""In: a model, a store, a source. Out: each bar predicted as it closes; the ledger of that, grades, drift."""

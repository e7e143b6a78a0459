"""In: predictions for bars that are still to come. Out: their ledger, their grades, and whether the world has moved."""

"""In: a feature as a SQL expression. Out: its meaning as a small tree that cannot read the future, or a refusal."""

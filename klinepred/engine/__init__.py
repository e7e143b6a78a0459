"""In: a pure function, things. Out: what it gives for each: computed here, or on the machines of a cluster."""

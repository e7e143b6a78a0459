"""In: a dataset, settings of network and training. Out: a small run before the big one: fp32 against fp16 and bf16."""

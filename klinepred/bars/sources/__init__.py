"""In: symbols, files or a seed. Out: raw bars as `Delivery` objects, unchecked."""

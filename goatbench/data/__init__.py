"""Image sources, transforms and the data module. Start with `sources` (no torch) and `images` (Lightning)."""

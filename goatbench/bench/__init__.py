"""Benchmarks of the attention core itself: time, memory, compilation, rounding. `goatbench bench attention`."""

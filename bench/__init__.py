"""Benchmarks: ratios against a yardstick in the same run, medians of several rounds. No test asserts them."""

"""Measuring: clocks, statistics, workloads, and the tidy record that every run leaves."""

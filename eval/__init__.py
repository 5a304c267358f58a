"""Scenarios, benchmarks and scoring."""

"""Checks and verdict: pure functions of contract and stored evidence."""

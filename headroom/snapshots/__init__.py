"""Snapshots of anybody: opened, read in a child process with limits, scrubbed, compared across ranks.

file or folder ──files──► plain pickle ──reader──► child (limits, evidence) ──► Analysis
"""

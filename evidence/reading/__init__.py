"""A snapshot file from anybody into checked columns: `safe_pickle` loads it, `snapshot` and `columns` give it types."""

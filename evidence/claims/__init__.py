"""Claims about a peak: `subjects` finds what they are about, `check` recomputes what they say."""

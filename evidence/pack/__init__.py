"""The evidence pack: `build` writes it, `plan` chooses what fits, `tokens` counts; the rest writes one section each."""

"""Evidence: bytes of a snapshot in, frozen dataclasses out. No torch, no network."""

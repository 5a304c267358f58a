"""The history of a device replayed backwards from its final segments, and every byte of the peak with its owner."""

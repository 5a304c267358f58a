"""Headroom: from a CUDA out-of-memory error to a patch that is proven to fit."""

__version__ = "0.1.0"

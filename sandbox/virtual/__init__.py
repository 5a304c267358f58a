"""The virtual GPU: a CUDA device without hardware, inside the user's interpreter."""

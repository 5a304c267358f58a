"""The built-in cures, one a file.

no_grad            evaluation that builds a graph nobody uses; `guards` says where `torch.no_grad()` may go
retained_graph     values kept together with their graph
collected_tensors  values without a graph that pile up on the device

The last two find what piles up (`piles`), which statements may hold it (`holders`, `suspects`), and write the edits
(`keeping`). `base` is what all plays share.
"""

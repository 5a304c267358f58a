"""The built-in cures, one a file.

no_grad            evaluation that builds a graph nobody uses; `guards` says where `torch.no_grad()` may go, `modes`
                   what to do where one line trains and evaluates in turn
retained_graph     values kept together with their graph
collected_tensors  values without a graph that pile up on the device

The last two find what piles up (`piles`), which statements may hold it (`holders`, `suspects`), and write the edits
(`keeping`): `forms` has their text for what may be no tensor, `hosts` says what may live on the host. `base` is what
all plays share.
"""

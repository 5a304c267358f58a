"""Programs as users write them, each with one memory problem. They are inputs: nothing imports them.

    evaluation_graph.py   validates without `torch.no_grad()`; the validation batch is larger than the training one
    retained_graph.py     keeps every update's loss, with its graph, for a plot
    oversized_batch.py    a GPT whose batch does not fit
    deep_model.py         a deep model whose activations do not fit at any batch worth training with
"""

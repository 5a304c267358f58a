"""The recorder: runs a program unmodified and writes down what it did, as versioned JSON lines.

It lives in the user's interpreter and imports itself, the standard library and, once the program has, torch. It may
fail, the program may not: every hook is guarded, and a hook that fails leaves a note. In a `measure` pass it allocates
nothing on the device; CUDA is initialised when the program does it, never before.

    bootstrap   the entry: loads this package under a private name, so that nothing of the user's is shadowed
    session     wires the parts together when the program imports torch
    launch      runs a script or module as `__main__`, with the exit code and traceback it would have had
    memory      peaks, cap, out-of-memory observer, allocator history and its snapshot
    updates     optimizer steps and step times;   losses   backward roots
    calls       outermost module calls: call sites, phases, samples;   parameters, sources, faults

In a `trace` pass also who allocates (docs/decisions/0007):

    attribution wires it: labels, mode (sees torch's calls), frames, detection, modules
    backward    labels the backward pass by node;   sites, nodes: which line made a node
    names       walks over live storages: walk, roots, objects, variables, saved
    snapshots   finishes a snapshot before it is written
"""

"""Agents: from an evidence pack to ranked causes and candidate patches.

protocol    what an agent gets and gives
playbook    the agent without a model; `plays/` holds its cures
edits       apply line edits, derive them, join them; `text` (lines and line ends), `diff` (for git) and `feedback`
            (what to say when one does not apply) belong to it
syntax      a file as lines and tree; `calls` is the vocabulary of PyTorch's names, `imports` says what names stand for
flow        where a value may go within a function, by `carry` expression by expression; `program` goes on from there,
            with `index` (what is where, by name), `callees` (what a call may run) and `training` (what trains)
sorts       whether a value may be a tensor, a number or a container, by the assignments that are `reaching` it
rewrite     change a program's text by its tree
"""

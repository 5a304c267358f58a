"""Parts of the benchmark `snapshot_readers`.

cases       synthetic snapshots and captures, with the truth about their peaks
measure     a reader in processes of its own: seconds, memory of its tree, limits
registry    every reader that this machine has: what is run, its version, where its peak comes from
accuracy    peaks against the truth
speed       seconds, memory and output on large files
scripts/    programs that run under a reader's own interpreter: standard library and that reader only
"""

"""Speed and accuracy, measured side by side in one run; each prints a table and one JSON line.

recorder_cost     step time of a program without Headroom, and recorded in each pass
virtual_gpu       seconds and error of the virtual GPU on programs whose peaks on an H200 are known
first_patch       seconds from `headroom fix` to the first kept patch
snapshot_readers  speed, memory and accuracy of readers of allocator snapshots, ours and others
scenarios         `headroom fix` over the scenarios, as a table of results
"""

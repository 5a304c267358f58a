"""Campaigns: rounds of diagnose, patch, try, keep or revert, under a contract sealed before any compute is spent.

target    from what was typed to bytes
runner    runs the program in one state under the contract, within its budgets
control   the unchanged program first: does it fail, at what peak
gather    a run's artifacts into the evidence that agents get
rounds    the loop
result    what is left at the end
"""

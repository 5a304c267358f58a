"""Evidence: bytes in, frozen dataclasses out. No torch, no network.

reading     a snapshot file into checked columns (`safe_pickle`, `snapshot`, `history`), its stacks numbered
account     the history replayed backwards (`walk`, `replay`), owners, names, the balance sheet
explain     what the account means: categories, timeline, lifetimes, growth, fragmentation, churn, changes
ledger      the account of a device at its peak; `analysis` that and all explanations, for each device
pack        the account and the source as a document within a token budget
claims      what somebody says about a peak, recomputed from the account
model       the ledger's dataclasses; `analysis_model` those of an analysis; `source` windows of source, `text` harmless
"""

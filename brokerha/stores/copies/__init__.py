"""A worker's copy and its directory: given away as a snapshot, replaced by one, kept over a split.

    worker_copy.py       a worker's directory: its present copy, snapshots for others, and the copy that replaces it
    directory.py         the directory of a worker: which copy is the present one, and the handling of damage at a start
    lives.py             a count of the processes that had a copy open and did not close it cleanly
    frozen.py            the content of a store at one LSN while the store goes on: written to files, or held
    kept.py              the copy that a worker keeps over a split
    snapshots.py         snapshots: made for others, and one of another worker that is received
"""

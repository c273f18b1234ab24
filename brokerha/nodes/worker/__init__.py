"""A worker in one process: store, core, loop, and the threads that work on its copy.

    node.py           a worker: core, store, transport, reads
    runner.py         turn() of a worker; the core's decisions about the copy as a whole: snapshots, chunks, loads
    tasks.py          long work that the master gives this worker; the background scrub of all data
    guarding.py       guards against growing memory, and reads and writes that never end
    limits.py         limits of a worker, as the cluster file sets them
"""

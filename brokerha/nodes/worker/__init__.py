"""A worker as one process holds it: store, core, loop, and the threads that work on its copy.

    node.py           a worker: core, store, transport, reads
    runner.py         turn() of a worker
    work_thread.py    a thread that does one piece of work after the other
    copying.py        what the core decides about the copy as a whole: snapshots, chunks, loads
    tasks.py          long work that the master gives to this worker
    scrubbing.py      the background scrub: when it looks at all of its data
    guarding.py       what must not go on: memory that grows, reads and writes that never end
"""

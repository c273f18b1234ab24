"""SHELLS: the runner and what one process holds.

    config/        the cluster file: its text, its keys, the environment over it, and the rules between values
    master/        a master as one process holds it; and the processes of a master with backups
    worker/        a worker as one process holds it: store, core, loop, and the threads that work on its copy
    front/         what comes from outside, on its way to the core of a master: checked, put in order, answered
    reads/         reads: on their way through the workers of a master, and in the threads of one worker
    observing/     what a node tells of itself: status, log lines, numbers; it reads, and changes nothing

    building.py    a node from the cluster file: opens data, connects, composes
    serving.py     one node in the foreground, until a signal
    settings.py    settings at run time at one node: what it knows of them, what is in force, what waits for its next start
    loop.py        the thread of a node, and calls that others hand in
    timetable.py   when what is due
    restoring.py   directories of nodes made from a backup
"""

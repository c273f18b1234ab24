"""SHELLS: the runner, and the parts of one process.

    config/        the cluster file: its text, its keys, the environment over it, and the rules between values
    master/        a master in one process; and the processes of a master with backups
    worker/        a worker in one process: store, core, loop, and the threads that work on its copy
    front/         requests from outside on their way to the core of a master: checked, ordered, answered
    reads/         reads: on their way through the workers of a master, and in the threads of one worker
    observing/     what a node reports about itself: status, log lines, metrics; it reads and changes nothing

    building.py    a node from the cluster file: opens data, connects, composes
    serving.py     one node in the foreground, until a signal
    settings.py    run-time settings at one node: the known rows, the values in force, the values that wait for its next start
    loop.py        the thread of a node, and calls from other threads
    timetable.py   times at which periodic work is due
    restoring.py   directories of nodes, made from a backup
"""

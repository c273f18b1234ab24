"""The cluster file: its text, its keys, the environment over it, and the rules between values.

    cluster.py       the cluster file
    file.py          its text, and the place of each value
    keys.py          what a key is, and how a table of keys is read off a dataclass
    nodes.py         keys of nodes
    process.py       keys of the section ``[cluster]`` about the processes of a master: backups, fail-over, transactions
    site.py          keys of the section ``[cluster]`` about sites
    reads.py         keys of the section ``[cluster]`` about reads
    doors.py         keys of the section ``[cluster]`` about the HTTP doors of all nodes
    environment.py   the environment laid over it
    rules.py         what must hold between values
    run_time.py      settings at run time laid over it
    page.py          its reference page
    added.py         a worker that is not in it
"""

"""Backups, restoring, and replaying lines of the log.

    command.py   ``brokerha backup``: make a backup of the cluster, list those of this machine, verify one
    places.py    where a command finds backups: ``--backups DIR``, else the folder of the cluster file
    restore.py   ``brokerha restore``: directories of nodes made from a backup
    replay.py    ``brokerha replay``: lines of the log, applied to the directory of a worker that is stopped, and where they come from
"""

"""Backups, restoring, and replaying lines of the log.

    command.py   ``brokerha backup``: make a backup of the cluster, list those of this machine, verify one; where commands find them
    restore.py   ``brokerha restore``: node directories from a backup, or an earlier state of a running cluster
    replay.py    ``brokerha replay``: lines of the log from several sources, applied to the directory of a stopped worker
"""

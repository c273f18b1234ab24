"""Which process of a master is primary, and what a primary holds back until its backups have it.

    role.py      which process of a master is primary: elections, promises, fail-over
    table.py     the four roles
    config.py    settings, numbers of views, what a role asks of the world
    gate.py      what a primary holds back until sync-N backups have it
    resting.py   paused, coined and continued by an operator
"""

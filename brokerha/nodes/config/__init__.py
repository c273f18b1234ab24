"""The cluster file: its text, the table of its settings, the environment over it, and the rules between values.

    settings.py      one setting: name, type, unit, default, bounds, one sentence; the check of a value
    cluster.py       the tables of the settings of ``[cluster]`` and of nodes, the configuration of each part of a node, and added workers
    file.py          the text, and the place of each value; the environment laid over it
    rules.py         rules between values
"""

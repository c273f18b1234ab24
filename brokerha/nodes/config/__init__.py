"""The cluster file: its text, the table of its settings, the environment over it, and the rules between values.

    settings.py      one setting: name, type, unit, default, bounds, one sentence; the check of a value
    cluster.py       the table of the settings of ``[cluster]``, the configuration of each part of a node, and added workers
    nodes.py         the tables of the settings of ``[[master]]``, ``[[backup]]`` and ``[[worker]]``
    file.py          the text, and the place of each value
    environment.py   the environment laid over it
    rules.py         rules between values
    page.py          the reference page, from page.template and the tables
    page.template    the text around the tables
"""

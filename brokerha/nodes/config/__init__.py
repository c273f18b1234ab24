"""The cluster file: its text, the table of its settings, the environment over it, and the rules between values.

    settings.py      what a setting is: name, type, unit, default, bounds, one sentence; how a value is checked
    cluster.py       the table of the settings of ``[cluster]``, what each part of a node is told, and a worker that is not in the file
    nodes.py         the tables of the settings of ``[[master]]``, ``[[backup]]`` and ``[[worker]]``
    file.py          the text, and the place of each value
    environment.py   the environment laid over it
    rules.py         what must hold between values
    page.py          the reference page, from page.template and the tables
    page.template    what it says around the tables
"""

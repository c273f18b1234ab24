"""The pages of docs/reference, made from the code: ``python -m tests.reference`` writes all that have changed.

    __main__.py     all pages, each with its text
    commands.py     every command, from its help
    json_outputs.py the JSON of every command, a contract: its table, its schemas
    configuration.py, configuration.template  the cluster file
    metrics.py      every metric
    api.py          the Python API, from signatures and docstrings
    sentences.py    the papers, sentence by sentence, from the docstrings of their tests

tests/docs/test_made_pages.py fails when a page is not what the code says.
"""

"""Reference pages and JSON schemas, made from the commands themselves.

    page.py           the reference page of all commands, made from the commands themselves
    json_page.py      the reference page of all JSON that commands write, and the file of each schema
    json_schemas.py   the JSON of each command with ``-o json``
"""

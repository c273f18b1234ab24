"""Reference pages and JSON schemas, made from the commands themselves.

    page.py           the reference page of all commands, made from the commands themselves
    json_schemas.py   the JSON of each command with ``-o json``, its reference page and the file of each schema
"""

"""What is made from the commands themselves: reference pages and JSON schemas.

    page.py           the reference page of all commands, made from the commands themselves
    json_page.py      the reference page of all JSON that commands write, and the file of each schema
    json_schemas.py   what each command writes with ``-o json``
"""

"""Input from outside, checked before use: JSON, msgpack, arguments, words for levels.

    foreign_json.py   foreign JSON: small input must not become large or deep in memory
    unpacking.py      foreign msgpack: small input must not become large in memory
    shapes.py         shapes of arguments, checked before a value from outside is used
    commands.py       operators' commands: which change anything, and what is unknown once one was sent
    hosts.py          hosts in addresses and URLs
    authors.py        the author of a transaction, as its interface found out
    levels.py         levels of acknowledgement as people write them
    isolation.py      isolation levels of transactions, by their names in SQL and RDF4J
"""

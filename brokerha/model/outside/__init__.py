"""What comes from outside, measured before it is believed: JSON, msgpack, arguments, words for levels.

    foreign_json.py   JSON that others send: what is small on the wire must neither be large in memory nor deep
    unpacking.py      unpacking what others send: what is small on the wire must not be large in memory
    shapes.py         shapes of arguments: what a value that came from outside has to be before anything is done with it
    hosts.py          hosts in addresses and URLs
    authors.py        who wrote a transaction, as its door found out
    levels.py         levels of acknowledgement as people write them
    isolation.py      isolation levels of transactions, by their names in SQL and RDF4J
"""

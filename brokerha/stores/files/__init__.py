"""The directory of a store and its LMDB files: opened, checked before they are mapped, durable after a power failure.

    environment.py   the directory: lock, format, identity, LMDB; the check that an LMDB file is complete, before LMDB maps it
    durable.py       small files that are replaced whole, directories that are fsynced
    data_pages.py    check that LMDB can walk through the pages of a file
"""

"""The directory of a store and its LMDB files: opened, checked before they are mapped, still there after a power cut.

    environment.py   the directory: lock, format, identity, LMDB
    durable.py       small files that are replaced whole, directories that are fsynced
    data_file.py     whether an LMDB file is whole, before LMDB is killed by it
    data_pages.py    whether the pages of an LMDB file are what LMDB needs to walk through them
"""

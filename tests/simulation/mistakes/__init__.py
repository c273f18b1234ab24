"""Planted mistakes: each switches off one rule in the shipped code, and the checks have to notice.

    catalogue.py     all of them, by what goes wrong; those of the order and of what is durable are here
    patches.py       what mistakes are made of
    log.py           the log on the disk, and what may wait for a flush
    forgetting.py    ids that are forgotten, and come again
    epochs.py        epochs, and masters that come and go
    modes.py         the strategies none, simple and smart, and the step between them and quorum
    workers.py       workers: followers, loads, snapshots, judgement; and their store, when it crashes between two steps
    backups.py       masters with backups, and transactions there
    transactions.py  what is prepared, what isolated transactions have read, large ones
    first_seeds.py   where the search for a seed that catches each of them begins
"""

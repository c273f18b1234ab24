"""Planted mistakes: each switches off one rule in the shipped code, and the checks have to notice.

    catalogue.py   planted mistakes: each switches off one rule of the protocol in the shipped code
    log.py         planted mistakes in the log on the disk; for `catalogue.py`, which makes them
    epochs.py      planted mistakes about epochs, for `catalogue.py`, which makes them
    modes.py       planted mistakes about the strategies none, simple and smart, for `catalogue.py`, which makes them
    choosing.py    planted mistakes about the step between quorum and the other strategies, for `catalogue.py`
    members.py     planted mistakes about masters that come and go, for `catalogue.py`, which makes them
    workers.py     planted mistakes about workers: followers, loads, snapshots, judgement
    backups.py     planted mistakes about masters with backups and about transactions, for `catalogue.py`
    stores.py      planted mistakes in the store of workers: what a crash between two of its steps has to show
    deferring.py   planted mistakes about what may wait for a flush
    prepare.py     planted mistakes about what is prepared
    isolation.py   planted mistakes about what isolated transactions have read
    large.py       planted mistakes about large transactions
    first_seeds.py where the search for a seed that catches each of them begins
"""

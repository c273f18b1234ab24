"""Master side: the state of each worker, the messages to it, and its orders.

    feed.py              the feed: which worker executes, which ones apply, confirmations, resends
    site.py              the site: its workers, their standing, and the orders that follow
    config.py            settings of a master towards its workers, and its knowledge of each
    judging.py           judging: whether a copy agrees with the log, and which copies are right when they disagree
    adopting.py          adopting: a copy that counts as right against the log, or where the log has nothing
    healing.py           healing: whether a worker replays the log or takes a snapshot, and from which source
    splits.py            splits: which copies are void when the log goes back, what is kept and restored
    lineages.py          lineages: which log a copy followed, how it changes to the next, what its content keeps
    tasks.py             tasks: long work that a master gives to a worker
"""

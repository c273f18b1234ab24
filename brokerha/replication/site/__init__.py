"""Master side: what each worker of a site is, what it is sent, and the orders that follow.

    feed.py              master side: who executes, who applies, what was confirmed, what to send again
    site.py              master side: what each worker is, and what it is told to do
    config.py            settings of a master towards its workers, and what it knows of each
    judging.py           whether a copy is what the log says, and who is right when copies disagree
    adopting.py          a copy that counts as right against the log, or where the log has nothing
    healing.py           whether a worker replays the log or takes a snapshot, and whose
    splits.py            which copies are void when the log goes back, who restores
    lineages.py          which log a copy followed and how it goes over to the next; what the content holds although it was taken back
    tasks.py             master side: long work that it gives to a worker
"""

"""CORE: the agreed log reaches the workers.

    PROTOCOL.md        messages, steps, invariants

    feed.py            master side: who executes, who applies, what was confirmed, what to send again
    site.py            master side: what each worker is, and what it is told to do
      judging.py       whether a copy is what the log says, and who is right when copies disagree
      adopting.py      a copy that counts as right against the log, or where the log has nothing
      healing.py       whether a worker replays the log or takes a snapshot, and whose
      splits.py        which copies are void when the log goes back, who restores
      lineages.py      which log a copy followed, and up to where that is the log of now
      keeping.py       which worker keeps a copy over a split
      site_words.py    why a site takes no writes, and what needs a person
      site_config.py   settings of a master towards its workers, and what it knows of each
    tasks.py           master side: long work that it gives to a worker

    worker.py          WorkerCore: takes transactions and effects in LSN order, one decision at a time
      backlog.py       what came and waits for the store, and what came too early
      follower.py      the four states of a worker
      asking.py        exactly the range that is missing, from whoever has it
      loading.py       takes a snapshot: from the first source that is asked to the copy that is open
      offering.py      gives a snapshot: the chunks that others want of it
      replacing.py     a load, or a restore of what was kept
      kept_here.py     what is kept of the own content, by order
      worker_words.py  what a worker says of itself
      worker_config.py settings of a worker, and what it finds when it starts

    role.py            which process of a master is primary: elections, promises, fail-over
      role_table.py    the four roles
      role_voting.py   whether a candidate gets a vote
      role_words.py    why nobody is primary, and what is lost by force
      role_config.py   settings, numbers of views, what a role asks of the world
    resting.py         paused, coined and continued by an operator
    gate.py            what a primary holds back until sync-N backups have it

    journal_feed.py      primary side: what of the journal each backup is sent
      journal_backups.py what each backup has, and whether it is ready
      journal_recent.py  the newest records in memory, and what may be left out of them
    journal_follower.py  backup side: the same records under the same numbers
      journal_line.py    what was received: in order, with bodies, whole turns at a time
      journal_asking.py  exactly the records that are missing
      journal_follower_config.py  its settings, and what it asks of the world
    journal_log.py       both: records by number, and the history of views

    cutting.py         long lists into messages of bounded size; used by both
"""

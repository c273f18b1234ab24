"""CORE: bringing somebody along a log: what each leader and each follower does, whatever the records are.

    PROTOCOL.md   states, messages, windows, policies, invariants

    leader.py     leader: one follower's window: what it was sent, confirmed, is sent again, asked for
    offering.py   leader: gives a snapshot: the chunks that others want of it

    follower.py   Follower: states, questions, the disk's turn, loads, heartbeats
      machine.py  IDLE, BASIC, REQUEST, LOAD
      line.py     what came and waits for the disk, and what came too early
      asking.py   exactly the range that is missing, from a node that has it
      loading.py  takes a snapshot: from the first source that is asked to the copy that is open
"""

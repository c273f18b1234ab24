"""CORE: a leader brings a follower along a log: the work of each, whatever the records are.

    PROTOCOL.md   states, messages, windows, policies, invariants

    leader.py     leader: one follower's window: sent, confirmed, resent and requested records
    offering.py   leader: gives a snapshot, and the chunks that followers request

    follower.py   Follower: states, requests, batches at the disk, loads, heartbeats
      machine.py  IDLE, BASIC, REQUEST, LOAD
      line.py     records that wait for the disk, and those that came too early
      asking.py   requests exactly the missing range, from a node that has it
      loading.py  takes a snapshot: from the first request to the open copy
"""

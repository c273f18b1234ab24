"""Scenarios of agreement as text: what is done to a few masters, and what each of them writes and sends.

Read them in this order: one_write, order_of_concurrent_writes, lost_messages, broken_link, quorum_split, crash_of_a_proposer, smart_split,
none_goes_on, joint_step, master_added; then no_majority and restart.
"""

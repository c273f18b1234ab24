"""CORE: one master as one state machine, composed of sync and replication.

core.py            MasterCore: routes inputs, merges the consequences into one Ready
admission.py       which writes are let in, who waits for which level, and until when
site_commands.py   operators' commands about the workers of a master
retention.py       how much of the log is kept
"""

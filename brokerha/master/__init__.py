"""CORE: one master as one state machine, composed of sync, replication and transactions.

core.py              MasterCore: routes inputs, merges the consequences into one Ready
admission.py         which writes are let in, who waits for which level, and until when
transacting.py       the coordinator of transactions inside of it
deferring.py         which turns wait for the next flush
primary.py           what the acting process is to its backups: feed, gate, role, offers
standby.py           a process that is not primary: follower, participant, role
pins.py              what of the log is still needed, and by whom
site_commands.py     operators' commands about the workers of a master
retention.py         how much of the log is kept
belonging.py         whether a master belongs to the cluster, for writers and for the status
command_arguments.py what each operator's command takes
parting.py           what a master does around a split in the strategies none, simple and smart
split_report.py      commands about splits, and what became of the transactions that lost their place when the queue went back
state_words.py       the state word and the reason of a master, from what its core knows; whether it is apart from the others
"""

"""CORE: one master as one state machine, composed of sync, replication and transactions.

config.py            settings of one master
core.py              MasterCore: routes inputs, merges their results into one Ready
admission.py         admission of writes, and the clients that wait for their levels
transacting.py       the coordinator of transactions inside a MasterCore
deferring.py         which turns wait for the next flush
primary.py           the acting process and its backups: feed, gate, role, offers
standby.py           a process that is not primary: follower, participant, role
pins.py              the parts of the log that are still needed, and their owners
site_commands.py     operators' commands about the workers of a master, and about its masters
retention.py         how much of the log is kept
belonging.py         whether a master belongs to the cluster, for writers and for the status
command_arguments.py the arguments of each operator's command
parting.py           the steps of a master around a split in the strategies none, simple and smart
split_report.py      commands about splits, and a report on transactions that lost their place when the queue went back
state_words.py       the state word and the reason of a master, from its core; whether it is apart from the others
"""

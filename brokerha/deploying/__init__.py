"""Deployment files made from the cluster file: what ``brokerha init`` writes.

    cluster file ──> machine.py      which nodes run here, with which command, environment and time-outs
                        ├─ supervisors.py   for supervisord a configuration and programs; for systemd units and a target
                        └─ compose.py       services of containers, with the configuration of RabbitMQ
                     accounts.py     users of the broker with their passwords and rights
                        └─ broker.py        definitions.json
    certificates.py  an authority of the cluster's own, and certificates for its doors
    templates/       fixed text of the files, with $names
    files.py         fills a template, compares with what is there, and writes without overwriting

All but files.py is text made from values: the same file gives the same text, so that a check can tell what is out of date. Keys are drawn by chance,
once: what is there and good is part of the plan as it is.
Must never put a password into a file that others may read.
"""

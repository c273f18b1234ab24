"""Deployment files, made from the cluster file: the output of ``brokerha init``.

    cluster file ──> machine.py      the nodes of this machine, with command, environment and timeouts of each; for supervisord a configuration
                                     and programs; for systemd units and a target
                        └─ compose.py       container services, with the configuration of RabbitMQ
                     broker.py       users of the broker with their passwords and rights; definitions.json
    certificates.py  the cluster's own certificate authority, and certificates for its doors
    templates/       fixed text of the files, with $names
    files.py         fills a template, compares with existing files, and writes without overwriting

All modules but files.py turn values into text: the same file gives the same text, so that a check can find outdated files. Keys are
random and drawn once: a good existing key is part of the plan unchanged. Must never put a password into a file that other users can
read.
"""

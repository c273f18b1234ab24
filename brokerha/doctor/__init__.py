"""What ``brokerha doctor`` knows: facts of this machine and of the broker, and the findings that follow from them.

    machine_facts.py   asks the operating system   ──┐                judging_machine.py ──┐
    broker_facts.py    asks the broker               ├─> facts.py ──> judging_broker.py    ├─> findings.py
    cluster_facts.py   asks the nodes              ──┘                judging_cluster.py ──┘
    bundle.py          the file of a support bundle: texts without secrets, each cut to its share
    redaction.py       takes secrets out of text: those that are known, wherever they stand, and what looks like one
    wanted.py          what a node wants of its broker: queues, exchanges that it publishes to, and rights

The judging modules are pure: the same facts give the same findings. Gathering changes nothing: nothing is declared that is not
there already, what is published is rolled back, and a file that is written to measure is deleted.
Must never put a password or a token into a fact or a finding.
"""

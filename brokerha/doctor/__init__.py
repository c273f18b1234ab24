"""What ``brokerha doctor`` knows: facts of this machine and of the broker, and the findings that follow from them.

    machine_facts.py   asks the operating system   ──┐
    broker_facts.py    asks the broker               ├─> facts.py ──> judging.py: the findings
    cluster_facts.py   asks the nodes              ──┘
    bundle.py          the file of a support bundle: texts without secrets, each cut to its share

Judging is pure: the same facts give the same findings. Gathering changes nothing: nothing is declared that is not
there already, what is published is rolled back, and a file that is written to measure is deleted.
Must never put a password or a token into a fact or a finding.
"""

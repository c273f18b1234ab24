"""Diagnosis for ``brokerha doctor``: facts of this machine, the broker and the nodes, and the findings from them.

    machine_facts.py   asks the operating system      ──┐
    cluster_facts.py   asks the nodes and the broker  ──┴─> facts.py ──> judging.py: the findings
    bundle.py          the file of a support bundle: texts without secrets, each cut to its share

Judging is pure: the same facts give the same findings. Gathering changes nothing: it declares only what exists, rolls back
published messages, and deletes files that it wrote to measure.
Must never put a password or a token into a fact or a finding.
"""

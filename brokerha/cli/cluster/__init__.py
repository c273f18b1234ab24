"""Commands that look at a cluster, and that change who takes part in it.

    status.py       ``brokerha status``: one row for each node, the state of the whole as exit code
    agreement.py    ``brokerha wait`` and ``brokerha verify``: do all copies hold what they should?
    log.py          ``brokerha log``: the synchronised queue, as every master holds it
    peer.py         ``brokerha peer``: the masters of the cluster, and changing them while it runs
    worker.py       ``brokerha worker``: workers at run time, and what a person decides about their content
    promote.py      ``brokerha promote NODE``: make one process of a master its primary, by hand
    settings.py     ``brokerha settings``: what of the cluster file is changed while the cluster runs
    splits.py       ``brokerha splits``: what became of what lost its place in a split
    quarantine.py   ``brokerha quarantine``: messages that nodes could not use
    user.py         ``brokerha user``: who may come through the HTTP doors, and as what
"""

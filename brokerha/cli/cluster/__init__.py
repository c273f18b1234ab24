"""Commands that inspect a cluster, or change its members.

    status.py       ``brokerha status``: one row for each node, and the state of the cluster as exit code
    agreement.py    ``brokerha wait`` and ``brokerha verify``: is a transaction applied, and are all copies equal?
    log.py          ``brokerha log``: the synchronised queue, as every master holds it
    peer.py         ``brokerha peer``: the masters of the cluster, and changes of them at run time; ``brokerha promote NODE``: its primary, by hand
    worker.py       ``brokerha worker``: workers at run time, and manual decisions about their content
    settings.py     ``brokerha settings``: settings that can be changed while the cluster runs
    splits.py       ``brokerha splits``: transactions that were given up in a split; ``brokerha split-recovery``: the strategy
    quarantine.py   ``brokerha quarantine``: messages that nodes could not use
    user.py         ``brokerha user``: users of the HTTP doors, and their roles
"""

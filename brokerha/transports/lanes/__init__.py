"""What waits between a node and its broker.

    inbox.py         what has arrived and was not taken yet
    outbox.py        what waits to be published: one bounded lane for each kind of traffic
    parcels.py       what travels between the port and the wire: a publication on its way out, an arrival on its way in
    unconfirmed.py   the window of a publishing channel: what was published and not confirmed yet
    unsettled.py     delivery tags of messages of apps, from delivery until they are settled
"""

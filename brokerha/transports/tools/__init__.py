"""For operators: features of a broker, and messages in quarantine.

    probing.py      looks at a broker as one user, and changes nothing: for `brokerha doctor`
    quarantine.py   the quarantine: messages that nodes could not use
    yardstick.py    measures the broker alone: the yardstick that `brokerha bench` shows beside its own figures
"""

"""For operators: features of a broker, and messages in quarantine.

    probing.py      looks at a broker as one user, and changes nothing: for `brokerha doctor`
    quarantine.py   the quarantine: messages that nodes could not use
"""

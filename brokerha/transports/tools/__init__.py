"""For operators: what a broker can do, and what lies in quarantine.

    probing.py      looks at a broker with one user's eyes, and leaves it as it was: for `brokerha doctor`
    quarantine.py   the quarantine: what nodes could not use
    yardstick.py    what the broker alone can do: the yardstick beside which `brokerha bench` puts its own figures
"""

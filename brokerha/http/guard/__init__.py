"""Users, and the rights of each.

    guard.py        authentication and roles: finds the user of a request, and refuses strangers and users without the role
    users.py        users of an HTTP door, and the file that lists them
    rights.py       the rights that a transaction or several reads need, by the stores that they name
"""

"""Users, and the rights of each.

    guard.py        authentication and roles: finds the user of a request, and refuses strangers and users without the role; the rights that
                    transactions and several reads need, by the stores that they name
    users.py        users of an HTTP door, and the file that lists them
"""

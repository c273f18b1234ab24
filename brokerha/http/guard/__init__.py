"""Who stands at the door, and what each may do.

    guard.py        who stands at the door: finds the user of a request, and refuses who is nobody or may not at a path
    users.py        who may come through an HTTP door, and the file that says so
    rights.py       what a transaction or several reads need, by the stores that they name
"""

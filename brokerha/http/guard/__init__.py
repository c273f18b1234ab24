"""Who stands at the door, and what each may do.

    guard.py        who stands at the door: finds the user of a request, and refuses who is nobody or may not
    users.py        who may come through an HTTP door
    users_file.py   the users file of a door as it is now
    roles.py        what a path is about, which says whose role counts there
    rights.py       what a transaction or several reads need, by the stores that they name
"""

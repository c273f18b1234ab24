"""What goes wrong in a world, and when.

    timing.py    what goes wrong in a world, and when
    luck.py      what all kinds of faults do: count and tell, last for a while, choose one that lives
    backups.py   what goes wrong with masters that have backups: processes killed, frozen, cut off from each other
    settings.py  settings that an operator changes while everything runs
    members.py   what operators do to the masters of a world while everything else goes on
"""

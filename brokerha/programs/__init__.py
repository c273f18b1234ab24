"""The programs of a node and of the pipeline, and those to start from, under a name that no other distribution has.

The repository has them beside the library, in `consumers/` and `producers/`: programs stand on the library, which never imports them.
An installed distribution has both folders in this one instead, because two names as common as those would collide with other packages.
So ``brokerha.programs.producers.master.main`` is the program of a master in a clone and in an installation alike.
"""

from pathlib import Path

_HERE = Path(__file__).parent
if not (_HERE / "producers").is_dir():
    # A clone: look beside the library.
    __path__.append(str(_HERE.parents[1]))

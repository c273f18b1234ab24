"""Bounds of the journal, each with its reason; a turn of the loop must stay short whatever the log holds."""

from __future__ import annotations

MAP_SIZE_BYTES = 64 * 1024**3
"""Address space for the file, and its largest size; it takes disk space only as far as it is written."""
CACHE_BYTES = 16 * 1024**2
"""Records just appended, kept as they are: the core asks for them again within a few turns."""
UNPACKED_BYTES = 8 * 1024**2
"""Records read back from the disk, so that reading an old range unpacks each record once."""
TAIL_RECORDS = 2_048
"""A restart reads at most about this many records for bodies without an LSN; older ones have rows in `waiting`."""
IDS_BUFFERED = 65_536
"""Transaction ids held in memory until their rows are written by key range, many to a page."""
IDS_WRITTEN = 1_024
"""Rows of ids that one turn may write beyond twice what it brought."""
TRIM_LSNS = 5_000
"""Most LSNs that one call of `trim` drops; measured with records of 200: 2 to 6 ms."""
TRIM_RECORDS = 200
"""Most `Added` records that one call of `trim` drops; measured with records of 5: 9 ms."""
TRIM_IDS = 5_000
"""Most rows of ids that one call of `trim` writes first."""
FORGET_IDS = 5_000
"""Most rows of ids that one call of `forget_ids` looks at; measured: 6 to 8 ms."""
FORGET_AT_ONCE = 10_000
"""`keep` looks through all ids once at least so many, and an eighth of all, may be old enough."""
REWOUND_BYTES = 256
"""About what going back writes of each transaction that is given up."""
COMPACT_FREE_BYTES = 64 * 1024**2
"""A file with less free space than this is never copied into a smaller one."""
COMPACT_AT_WORK_BYTES = 128 * 1024**2
"""Most bytes that are copied while a master is at work: the loop stands still meanwhile, about a second."""
MARK_LSNS = 1_000
"""Trimmed LSNs between two of which the timestamp stays known: ids are forgotten by time, in steps of this size."""
VERIFIED_AT_OPEN = 1_000
"""Newest records whose checksums are verified when the journal is opened."""
READ_AT_ONCE = 256
"""Records that a long iteration reads in one snapshot, so that it does not keep old pages from being used again."""
AHEAD_BYTES = 32 * 1024**2
"""The file is kept this much longer than its last used page (sparse), so that a shorter file is surely damaged."""

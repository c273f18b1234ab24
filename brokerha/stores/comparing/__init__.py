"""Whether copies hold the same: fingerprints, digests of parts, and the scrub that looks at all of it.

    fingerprint.py   order-independent digest of the content, versioned
    digests.py       the reads of kinds ``digests`` and ``items``
    items.py         names of items: 16 bytes that say which quad, key, message or check is meant, whatever its value is
    scrub.py         the data compared with its fingerprint, slowly, in the background
"""

"""Comparison of copies: fingerprints, digests of parts, and the scrub of all data.

    fingerprint.py   order-independent digest of the content, versioned
    digests.py       the reads of kinds ``digests`` and ``items``
    items.py         names of items: 16 bytes that identify a quad, key, message or check, independent of its value
    scrub.py         compares the data with its fingerprint, slowly, in the background
"""

"""The data of a worker: RDF repositories, key-value tables and queues, in one store that changes them in one commit.

    execution/   how a transaction changes a store: one applied LSN over all repositories, tables and queues
    rdf/         RDF repositories on pyoxigraph: commits with their position, net changes of quads, reads, formats
    sparql/      SPARQL as text: admission, and updates as exact, deterministic effects
    tables/      key-value tables and queues on LMDB
    control/     the control suite: checks that must hold after each transaction
    reads/       reads of a store: their kinds, several reads of one moment, reads inside an open transaction
    comparing/   comparison of copies: fingerprints, digests of parts, and the scrub of all data
    copies/      a worker's copy and its directory: given away as a snapshot, replaced by one, kept over a split
    backup/      backups: made, extended, verified, restored, built in bulk; BACKUP.md: their files
    files/       the directory of a store and its LMDB files: opened, checked before they are mapped, durable after a power failure

    FORMAT.md    every file in the directory of a worker

             SPARQL text + tx id + timestamp                      effect
change_of  ----------------------------------->  QuadChange  ------------->  commit(removed, added, lsn)
             on the state before it, read only                    one atomic write, position included
"""

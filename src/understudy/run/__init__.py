"""One run from start to finish: plan, charge, release, generate, resume.

The order of the steps is the privacy argument (architecture, section 4, rule 3):

    plan       from public parameters; the ledger checks that it fits, and nothing is read
    charge     content fingerprint, then one serialised transaction in the ledger, synced
    sample     each noisy value is stored in private/run.sqlite, and confirmed in the ledger by a keyed digest,
               before it is used: a copy of the folder cannot sample and use a different one
    use        the Release is built from stored values only; on resume they are read, never sampled again
    generate   reads the Release; every answer of a language model is stored under its request
"""

"""Where the parts of a private table are worked on: this process, processes of this machine, or a Ray cluster.

An engine maps a function over items, with results in order and retries. It knows nothing of privacy: workers read
private text and return exact partial sums, or write private files into the run's scratch folder; the process that began
the run alone holds the ledger, samples noise and stores values.
"""

"""SeqPATE: teachers on disjoint shards answer noisily, and a student learns from their answers (Tian et al. 2022)."""

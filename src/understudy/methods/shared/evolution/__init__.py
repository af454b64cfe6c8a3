"""Private evolution, what its methods share: populations and their lineage, voting, selection, variation."""

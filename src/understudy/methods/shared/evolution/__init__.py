"""Private evolution, shared by its methods: populations and their lineage, voting, selection, variation."""

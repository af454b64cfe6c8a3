"""What of the real texts shows in the synthetic ones, beside what shows of texts that were never used."""

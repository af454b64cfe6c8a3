"""SecPE: secret-protected evolution: noisy centres are released once, and texts evolve against them."""

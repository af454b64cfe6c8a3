"""How near the synthetic texts are to the real ones, as a whole."""

"""DP-KPS: keyphrase sequences from noisy densities, which then prompt any language model (Nagesh et al. 2025)."""

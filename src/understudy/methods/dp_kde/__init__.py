"""DP-KPS as published: private kernel densities over embedded terms seed the prompts (Nagesh et al. 2025)."""

"""What the library costs and what its texts are worth, measured: ``python -m benchmarks --list``."""

"""Is it any good, and does it leak: real texts against synthetic ones. Every number is a typed :class:`Figure`."""

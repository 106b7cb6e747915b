//! Containers (LXC): define, start, stop, look inside.

"""The interfaces of other programs: scripts and benchmarks that were written for them run on our models."""

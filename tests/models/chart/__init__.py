"""The chart parser."""

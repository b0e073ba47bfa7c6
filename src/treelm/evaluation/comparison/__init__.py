"""Several trained systems side by side: what is measured of each, one table in several formats, kept in one file."""

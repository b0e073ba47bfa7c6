"""The golden record: what treelm says today, in figures, to be compared after the code has moved."""

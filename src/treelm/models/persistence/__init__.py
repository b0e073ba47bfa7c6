"""Models, and whatever else a run leaves, as files that are whole or not there: nothing is pickled."""

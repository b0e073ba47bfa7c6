"""A page on this machine where a sentence is typed and models are watched while they read it (``treelm explore``)."""

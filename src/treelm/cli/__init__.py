"""The command line: one module a verb, nothing but argument handling."""

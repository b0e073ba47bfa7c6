"""The systems, one folder each, behind one interface."""

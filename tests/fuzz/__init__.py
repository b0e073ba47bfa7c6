"""Hostile files for every reader: ``make fuzz`` tries many, the tests here some."""

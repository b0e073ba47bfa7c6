"""The public surface, frozen: ``make snapshots`` writes it down again when it is changed on purpose."""

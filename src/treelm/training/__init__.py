"""The fit loop, optimisers and schedules, checkpoints, resume."""

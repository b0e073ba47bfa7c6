"""Human data: reading times that surprisals predict, and garden paths for people and models."""

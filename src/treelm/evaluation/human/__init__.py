"""People as the judge: reading times that surprisals predict, and what garden paths cost people and models."""

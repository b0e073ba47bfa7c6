"""People as the judge: how well surprisals predict reading times, and whether garden paths cost what they cost people."""

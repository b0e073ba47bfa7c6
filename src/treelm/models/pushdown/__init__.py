"""Pushdown layers: a Transformer whose attention sees how deep each word lies in the tree that it has built so far."""

"""Recurrent neural network grammars (Dyer et al. 2016; Kuncoro et al. 2017; Noji & Oseki 2021)."""

"""Chart parser: labelled n-ary trees by a tree CRF over spans, with exact marginals; a parser without words."""

"""Tables and figures of papers, declared in files and made by ``treelm reproduce``.

One TOML file a table or figure, ``PAPER/table3.toml`` or ``PAPER/figure4.toml``::

    title = "What each part is worth"             # required, as are source and data
    source = "Table 3, Shen et al. 2018"
    data = "ptb-lm"                               # training data of the paper's setting: a name of data.toml
    seeds = 1                                     # runs of a row in the paper's setting
    paired_with = "whole"                         # seeds are paired: each row's values less those of this row, by seed
    drawing = "dots"                              # or lines (loss against time), picture (of ``sentence``)
    notes = ["What a reader must know."]

    [measures.test]                               # how something is measured; kinds: treelm.papers.metrics
    kind = "evaluate"
    split = "test"
    stream = "only"

    [[columns]]
    name = "test"                                 # the key of published values
    heading = "test ppl"
    measure = "test"                              # without it, the measure of the column's name
    metric = "perplexity_per_word_with_end, in a stream"
    digits = 1

    [[rows]]
    name = "whole"
    recipe = "prpn-ptb"

    [[rows]]                                      # a recipe and what the row changes in it
    name = "without parsing network"
    recipe = "prpn-ptb"
    settings = ["model.parsing_network=false"]
    published = { test = 64.42 }

    [[rows]]                                      # trained, then finetuned: in the paper's setting a second run, from
    name = "AWD-LSTM, finetuned"                  # the best weights of the first, has these settings besides
    recipe = "awd-lstm-ptb"
    finetuning = ["training.optimizer=asgd", "training.stop_after=10"]

    [[rows]]                                      # or a baseline of the measures' own trees, without training
    name = "right-branching"
    baseline = "right-branching"

    [[rows]]                                      # or why no command makes it
    name = "CCM"
    absent = "no system of treelm"

    [[stand_ins]]                                 # --small takes the first whose data are available
    label = "PTB words, 200/400 units, 2 CPU minutes"
    data = "ptb-lm"
    seeds = 3
    settings = ["model.embedding_size=200"]       # for every row, before the row's own
    [stand_ins.recipes.lstm-as-prpn-ptb]          # for rows of this recipe: other recipe, more settings
    settings = ["model.weight_dropout=0.2"]
    [stand_ins.measures.test]                     # options of measures that differ
    stream_rows = 10

A row can also change options of measures (``[rows.measures.test]``) and the metric of a column
(``metrics = { test = "..." }``), be ``untrained = true`` (a network as it is drawn), and have ``seeds``, ``data``,
``paired_with`` and a ``note`` of its own. ``data.toml`` says of each data set what it is, where it comes from, and
where it lies below ``--data``.

``declaration`` reads and checks these files, ``data`` finds data, ``plan`` says which jobs a table needs, ``work`` does
one of them, ``metrics`` measures it, ``results`` puts values beside the published ones, ``output`` writes them.
"""

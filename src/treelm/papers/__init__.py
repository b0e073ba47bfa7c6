"""Tables and figures of papers, declared in a file each paper and made by ``treelm reproduce``.

``PAPER.toml`` has the tables and figures in the paper's order, under its numbers, row by row as they are printed::

    paper = "Shen et al. 2018"

    ["Table 3"]                                   # or ["Figure 4"]
    title = "What each part is worth"
    data = "ptb-lm"                               # training data of the paper's setting: a name of data.toml
    seeds = 1                                     # runs of a row in the paper's setting
    notes = ["What a reader must know."]

    ["Table 3".measures]                          # how something is measured; kinds: treelm.papers.metrics
    test = { kind = "evaluate", split = "test", stream = "only" }

    ["Table 3".columns]                           # a metric of a measure, else of that of the column's name
    "test ppl" = { measure = "test", metric = "perplexity_per_word_with_end, in a stream" }
    "epochs" = { measure = "log", metric = "epochs", added = true }  # ours: not in the paper

    ["Table 3".rows]                              # what is printed: a word for each of the paper's columns, - for none
    "PRPN" = { printed = "61.98", train = "prpn-ptb" }               # train: the arguments of ``treelm train``
    "- Parsing Net" = { printed = "64.42", train = "prpn-ptb --set model.parsing_network=false" }
    "AWD-LSTM" = { train = "awd-lstm-ptb", finetune = "--set training.optimizer=asgd", added = true }
    "right-branching" = { baseline = "right-branching" }             # of the measures' own trees, without training
    "CCM" = { heading = "Others", printed = "-", absent = "no system of treelm" }        # or why no command makes it

    ["Table 3".stand_ins.gum-open]                # --small takes the first whose data are available
    label = "gum-open, 128 units, 5 epochs"
    data = "gum-open"
    seeds = 3
    set = "training.max_minutes=none"             # for every row, before the row's own
    train.prpn-ptb = "prpn-small --set training.batch_size=16"       # for rows of this recipe: another, more settings
    measures.test = { stream_rows = 10 }          # options of measures that differ

``[measures]`` and ``[stand_ins.NAME]`` outside of a table are shared by all of the file; a table that has stand-ins of
its own takes those, laid over the shared ones of the same names. ``finetune`` makes, in the paper's setting, a second
run from the best weights of the first. A row can also change options of measures (``measures.test = {...}``) and the
metric of a column (``metrics = { "test ppl" = "" }``), be ``untrained = true`` (a network as it is drawn), and have
``data``, a ``note``, and values that others than the paper give (``elsewhere``). Where recipes change from column to
column, ``{column}`` in ``train`` is the column's name, and a column has ``data``. Recipes that only tables use lie in
``recipes``. ``data.toml`` says of each data set what it is, where it comes from, and where it lies below ``--data``.

``kept/PAPER.toml`` has what earlier runs gave, as it is shown, a word for each column, ours among them::

    made = "2026-11-23, Intel Xeon"
    ["Table 3"]
    setting = "gum-open, 128 units, 5 epochs, 3 seeds"
    ["Table 3".rows]
    "PRPN" = "231.4±18.5 5"

``tests/papers/test_declaration.py`` checks what is declared. ``declaration`` reads these files, ``data`` finds data,
``plan`` says which jobs a table needs, ``work`` does one of them, ``metrics`` measures it, ``results`` puts values
beside the printed ones, and writes them.
"""

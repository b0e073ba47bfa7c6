"""The config of training: everything that is not data, vocabulary or network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from treelm.configs import Number, Positive, Size, Weight, configuration, require

Precision = Literal["fp32", "fp32-fast", "bf16"]
Schedule = Literal["constant", "plateau", "warmup"]
Decay = Literal["none", "inverse-sqrt", "linear", "cosine"]
_TO_ZERO = ("linear", "cosine")
OptimizerName = Literal["adam", "sgd", "asgd", "nt-asgd", "adam-then-asgd"]
Share = Annotated[float, Field(ge=0, lt=1)]
Threads = Annotated[int, Field(ge=1, le=1024)]
"""Of one machine: from some tens of thousands on, thread libraries end the process."""


@configuration
class TrainingConfig:
    """Training ends at whichever of ``epochs``, ``max_steps``, the two limits of time and early stopping comes first.

    One step is one batch and one update of the weights. Raises ``InputError`` for values that do not fit together.
    """

    # How long. These four may grow when a run is resumed; not the first two under a schedule in shares of the run.
    epochs: Size | None = 18
    """Passes over the training data."""
    max_steps: Size | None = None
    """Updates of the weights."""
    max_minutes: Positive | None = None
    """Minutes of training by the clock, over all resumed parts: updates, evaluations on dev and checkpoints, but not
    the preparation of data, nor what a caller of ``Trainer.steps`` does between two steps. The step in which they are
    over is the last. Limits of time make a run depend on the machine's speed, and on what else runs there."""
    max_cpu_minutes: Positive | None = None
    """Minutes of processor time in updates of the weights, over all resumed parts and all threads: a limit that other
    programs on the same machine hardly change, and that evaluation does not count for."""
    stop_after: Size | None = None
    """Early stopping: end after this many evaluations in a row without a better dev loss."""

    # What it starts from.
    start_from: str | None = None
    """Finetuning: the run folder whose weights and vocabulary this run starts with; ``[vocabulary]`` is not looked at.
    Sizes must be the same, rates of dropout may differ."""

    # Batches.
    batches: Literal["sentences", "stream", "packed"] = "sentences"
    """Whole sentences, each from the zero state; or segments of the corpus in a row, with the hidden state kept; or
    packed rows: whole sentences of one document in a row, each row from the zero state."""
    batch_size: Size = 16
    """Sentences in a step, at most; rows of a stream; packed rows, at most."""
    bptt: Size = 35
    """Steps of a segment (stream); tokens of a row, at most (packed)."""
    bptt_random_length: bool = False
    """Draw the length of every segment around ``bptt``, or rarely half of it, and scale the learning rate by length
    over ``bptt`` (Merity et al. 2018, section 5)."""
    shuffle_documents: bool = False
    """Read the documents of a stream, which blank lines divide, in a new order in every epoch; else in the file's."""
    sentence_ends: bool = True
    """Put the end token behind each sentence of a stream; not for text8, which has no sentences."""
    dev_rows: Size = 10
    """Rows in which dev is read (stream); each begins from the zero state, so fewer are better and slower. With packed
    rows, how many are read at once."""
    max_actions: Size | None = 26_000
    """Parser actions in a step, at most (26,000 in Noji & Oseki 2021)."""
    micro_batch_size: Size | None = None
    """Gradient accumulation: compute a step in parts of this many sentences, to save memory. Same gradient."""

    # Objective and optimiser.
    normalise_loss: Literal["word", "sentence"] = "sentence"
    """The loss is the step's negative log likelihood in nats divided by its number of words or of sentences; in a
    stream always by its number of targets."""
    optimizer: OptimizerName = "adam"
    """``sgd`` has no momentum. ``asgd`` is ``sgd``, and evaluates and saves the mean of the weights of all steps.
    ``nt-asgd`` is ``sgd`` until a planned dev loss is worse than the best before the last ``nonmonotone_interval``
    ones, then ``asgd`` (Merity et al. 2018, Algorithm 1). ``adam-then-asgd`` changes after ``adam_epochs``."""
    nonmonotone_interval: Size = 5
    """Evaluations that ``nt-asgd`` has patience for (n)."""
    adam_epochs: Number = 40
    """Epochs of Adam before ``adam-then-asgd`` changes."""
    asgd_learning_rate: Positive = 30.0
    """Learning rate after ``adam-then-asgd`` has changed."""
    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """Adam's decay of the two moments."""
    epsilon: Positive = 1e-8
    """Adam's term for numerical stability."""
    weight_decay: Weight = 0.0
    """Weight decay: decoupled with Adam (AdamW), part of the gradient with SGD."""
    coupled_weight_decay: bool = False
    """Make it part of the gradient with Adam too, before the moments (as in Adam's paper)."""
    no_weight_decay: tuple[str, ...] = ()
    """Parameters without weight decay, as patterns of their names, such as ``*bias`` or ``embedding``."""
    gradient_clip: Positive | None = 5.0
    """Largest norm of the gradient; larger ones are scaled down."""

    # Schedule of the learning rate.
    schedule: Schedule = "constant"
    """``plateau`` multiplies by ``plateau_factor`` when dev does not improve; ``warmup`` rises, then decays."""
    plateau_factor: Share = 0.5
    """Multiplier at a plateau."""
    plateau_patience: Number = 0
    """Evaluations without improvement that are tolerated before the learning rate falls."""
    warmup: Share = 0.0
    """Linear rise from 0 (schedule ``warmup``): its share of the run, or of ``decay_steps`` if they are given."""
    warmup_steps: Number = 0
    """Steps of this rise, in place of ``warmup``."""
    decay: Decay = "none"
    """Course after the warm-up: ``inverse-sqrt`` of the step, or ``linear`` or ``cosine`` down to 0 at the end of the
    run, as ``epochs`` and ``max_steps`` set it."""
    decay_steps: Size | None = None
    """Step at which ``linear`` and ``cosine`` arrive at 0, in place of the end of the run."""

    # Evaluation, records, checkpoints.
    select_by: Literal["loss", "unlabeled_f1"] = "loss"
    """Choice of the model to keep: the lowest loss on dev, or the highest unlabelled F1 against dev's trees
    (the two criteria of Htut et al. 2018; the second sees trees). Schedules and early stopping look at the loss."""
    evaluate_every_steps: Size | None = None
    """Evaluate on dev every so many steps; without it, at the end of every epoch."""
    log_every_steps: Size = 50
    """Steps that are averaged in one line of ``metrics.jsonl``."""
    checkpoint_every_steps: Size | None = None
    """Save the state of training every so many steps."""
    checkpoint_every_minutes: Positive | None = 10.0
    """Save the state of training when so many minutes have passed; it is saved at the end of every epoch anyway."""
    keep_checkpoints: Size = 2
    """Newest checkpoints that are kept; two, so that one damaged file does not lose the run."""

    # Machine.
    device: Literal["cpu", "cuda", "auto"] = "auto"
    """Device that computes; ``auto`` takes a GPU if there is one."""
    precision: Precision = "fp32"
    """``fp32-fast``: float32 with the faster matrix products of oneDNN, where these do not round, or TF32 on a GPU.
    ``bf16``: mixed, weights in float32."""
    devices: Threads = 1
    """Processes of each node, one a device (GPU, or share of the CPU's cores). May differ when a run is resumed."""
    num_nodes: Size = 1
    """Machines. Under torchrun or srun both may be left out. May differ when a run is resumed."""
    shards: Size | None = None
    """Parts of every batch, each with random numbers of its own; each process computes some. With equal shards a run is
    the same, up to rounding, on any number of processes. None: as many as there are processes (one of one: the whole
    batch), and random numbers depend on that."""
    timeout_minutes: Positive = 30.0
    """Minutes that processes wait for each other before they give up. May differ when a run is resumed."""
    threads: Threads | None = None
    """CPU threads; None leaves torch's number. Results are equal bit for bit only for equal numbers."""
    deterministic: bool = True
    """Refuse operations that give other bits in every run."""
    cuda_graphs: bool = False
    """Capture the loops over steps of LSTM, ON-LSTM, PRPN and PaLM as CUDA graphs, once for each shape of a batch, so
    it is for streams of segments of few lengths; and the levels of an RNNG without attention, padded to few
    shapes. GPU only. May differ when a run is resumed."""
    fused_kernels: Literal["none", "level", "forest"] = "none"
    """Compute the LSTMs of an RNNG by kernels in Triton: one a level of stacks or trees, or one for all levels. GPU
    only; not yet tried on one. May differ when a run is resumed."""
    seed: Number = 1
    """Seed of initial weights, order of batches and dropout."""

    def __post_init__(self) -> None:
        """Check combinations."""
        is_limited = any(getattr(self, name) is not None for name in LIMITS)
        require(self, "epochs", is_limited, "epochs, max_steps or max_minutes, or training would never end")
        is_whole, is_stream = self.batches == "sentences", self.batches == "stream"
        require(self, "micro_batch_size", is_whole or self.micro_batch_size is None, '"none", or a lower batch_size')
        for name in ("bptt_random_length", "shuffle_documents"):
            require(self, name, is_stream or not getattr(self, name), 'false, or batches = "stream"')
        require(self, "sentence_ends", self.sentence_ends or self.batches != "packed", 'true, or batches = "stream"')
        is_adam = self.optimizer in ("adam", "adam-then-asgd")
        remedy = "false: weight decay of SGD is part of the gradient anyway"
        require(self, "coupled_weight_decay", is_adam or not self.coupled_weight_decay, remedy)
        for name, default in (("decay", "none"), ("warmup", 0.0), ("warmup_steps", 0)):
            is_used = getattr(self, name) != default
            require(self, name, self.schedule == "warmup" or not is_used, f'{default!r}, or schedule = "warmup"')
        if self.decay_steps is not None:
            require(self, "decay_steps", self.decay in _TO_ZERO, '"none", or decay = "linear" or "cosine"')
            is_above = self.decay_steps > self.warmup_steps
            require(self, "decay_steps", is_above, f"a step above warmup_steps = {self.warmup_steps}")
        ends = self.epochs is not None or self.max_steps is not None or not self.has_shares
        require(self, "epochs", ends, "epochs or max_steps, or the schedule in steps: warmup_steps and decay_steps")

    @property
    def has_shares(self) -> bool:
        """Tell whether the schedule depends on the length of the run."""
        rises = self.warmup > 0 and not self.warmup_steps
        return self.decay_steps is None and (rises or self.decay in _TO_ZERO)

    @property
    def extendable(self) -> tuple[str, ...]:
        """Fields that may differ when a run is resumed."""
        lengths = LIMITS_OF_TIME if self.has_shares else LIMITS
        return (*lengths, "devices", "num_nodes", "timeout_minutes", "cuda_graphs", "fused_kernels")

    def schedule_steps(self, num_steps: int | None) -> tuple[int, int | None]:
        """The steps of the warm-up, and the step at which the decay arrives at 0 (None: never).

        ``num_steps`` is the length of the run, of which they may be shares; None where nothing depends on it.
        """
        length = self.decay_steps or num_steps or 0
        warmup = self.warmup_steps or int(self.warmup * length)
        if self.decay not in _TO_ZERO:
            return warmup, None
        return warmup, self.decay_steps or max(length, warmup + 2)  # a run of a step or two learns something too


LIMITS_OF_TIME = ("max_minutes", "max_cpu_minutes")  # fields whose effect depends on the machine's speed

LIMITS = ("epochs", "max_steps", "max_minutes", "max_cpu_minutes")  # fields that say how long; one of them must

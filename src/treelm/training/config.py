"""The config of training: everything that is not data, vocabulary or network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from treelm.configs import Number, Positive, Size, Weight, configuration
from treelm.errors import InputError

Precision = Literal["fp32", "fp32-fast", "bf16"]
Schedule = Literal["constant", "plateau", "warmup"]
Decay = Literal["none", "inverse-sqrt", "linear", "cosine"]
OptimizerName = Literal["adam", "sgd", "asgd", "nt-asgd", "adam-then-asgd"]
Share = Annotated[float, Field(ge=0, lt=1)]
Threads = Annotated[int, Field(ge=1, le=1024)]
"""Of one machine: from some tens of thousands on, thread libraries end the process."""


@configuration
class TrainingConfig:
    """Training ends at whichever of ``epochs``, ``max_steps``, the two limits of time and early stopping comes first.

    One step is one batch and one update of the weights. Raises ``InputError`` for values that make no sense.
    """

    # How long. These four may grow when a run is resumed.
    epochs: Size | None = 18
    """Passes over the training data."""
    max_steps: Size | None = None
    """Updates of the weights."""
    max_minutes: Positive | None = None
    """Minutes of training by the clock, over all resumed parts: updates, evaluations on dev and checkpoints, but not
    the preparation of data, nor what a caller of ``fit`` does between two steps. The step in which they are over is
    the last. Limits of time make a run depend on the machine's speed, and on what else runs there."""
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
    warmup_steps: Number = 0
    """Steps of linear rise from 0 (schedule ``warmup``)."""
    decay: Decay = "none"
    """Course after the warm-up: ``inverse-sqrt`` of the step, or ``linear`` or ``cosine`` down to 0."""
    decay_steps: Size | None = None
    """Step at which ``linear`` and ``cosine`` arrive at 0."""

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
    it is for streams of segments of few lengths. GPU only; not yet tried on one. May differ when a run is resumed."""
    seed: Number = 1
    """Seed of initial weights, order of batches and dropout."""

    def __post_init__(self) -> None:
        """Check combinations."""
        if all(getattr(self, name) is None for name in LIMITS):
            raise InputError("training would never end", remedy="set epochs, max_steps or max_minutes")
        processes = self.devices * self.num_nodes
        if self.shards is not None and self.shards < processes:
            found = f"shards = {self.shards} for {processes} processes"
            raise InputError(found, remedy="give each process a shard, or leave shards out")
        if self.batches == "stream" and self.batch_size < (self.shards or processes):
            found = f"a stream of batch_size = {self.batch_size} rows for {self.shards or processes} shards"
            raise InputError(found, remedy="raise batch_size, or lower shards or devices")
        if self.batches != "sentences" and self.micro_batch_size is not None:
            found = f"micro_batch_size = {self.micro_batch_size} with batches = {self.batches!r}"
            raise InputError(found, remedy="leave it out, or lower batch_size or bptt")
        for name in ("bptt_random_length", "shuffle_documents"):
            if self.batches != "stream" and getattr(self, name):
                raise InputError(f"{name} with batches = {self.batches!r}", remedy='set batches = "stream"')
        if self.batches == "packed" and not self.sentence_ends:
            raise InputError("sentence_ends = false with batches = 'packed'", remedy='set batches = "stream"')
        if self.cuda_graphs and self.device == "cpu":
            raise InputError("cuda_graphs = true with device = 'cpu'", remedy='leave it out, or set device = "cuda"')
        if self.coupled_weight_decay and self.optimizer not in ("adam", "adam-then-asgd"):
            found = f"coupled_weight_decay with optimizer = {self.optimizer!r}"
            raise InputError(found, remedy="leave it out: weight decay of SGD is part of the gradient anyway")
        if self.schedule != "warmup" and (self.decay != "none" or self.warmup_steps):
            field = "decay" if self.decay != "none" else "warmup_steps"
            found = f"{field} = {getattr(self, field)!r} with schedule = {self.schedule!r}"
            raise InputError(found, remedy='set schedule = "warmup"')
        if self.decay_steps is not None and self.decay not in ("linear", "cosine"):
            found = f"decay_steps = {self.decay_steps} with decay = {self.decay!r}"
            raise InputError(found, remedy='set decay = "linear" or "cosine"')
        if self.decay in ("linear", "cosine") and (self.decay_steps is None or self.decay_steps <= self.warmup_steps):
            found = f"decay = {self.decay!r} with decay_steps = {self.decay_steps!r}"
            raise InputError(found, remedy=f"set decay_steps above warmup_steps = {self.warmup_steps}")


LIMITS_OF_TIME = ("max_minutes", "max_cpu_minutes")
"""Fields whose effect depends on the machine's speed."""

LIMITS = ("epochs", "max_steps", "max_minutes", "max_cpu_minutes")
"""Fields that say how long; one of them must."""

EXTENDABLE = (*LIMITS, "devices", "num_nodes", "timeout_minutes", "cuda_graphs")
"""Fields that may differ when a run is resumed."""


REMOVED = {"restart_share": 0.0}
"""Fields that once were there, with the default that saved recipes and checkpoints have of them."""


def without_removed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of ``[training]`` that an older version saved, without removed fields at their default."""
    return {name: value for name, value in values.items() if name not in REMOVED or value != REMOVED[name]}

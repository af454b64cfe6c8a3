"""Teachers: adapters on one frozen base, each tuned on its own shard of the records, several in one pass. The only sum
over private records is that of their answers to the questions of a round.

A shard's records are those whose keyed hash names the teacher. A teacher takes a public number of steps, each on
``batch`` texts of its shard, in the order of their hashes, repeatedly. A teacher without records reads the public
row, a prompt without a text, and stays the base model.

Groups are trained and asked in this process, or by the workers of the corpus's engine, which are sent their rows. A
group is the same bit for bit on any machine that trains it (:func:`kind_of_teachers`).

**One shard, one teacher.** A record must change only its teacher's adapters, and not a bit of any other. So a teacher
has a fixed place in a fixed group, and all computations of a group have one public shape, whatever the shards contain:
slot j of a group is the j-th text of each of its teachers, or the public row. :func:`require_separate_teachers` tests
on the device that nothing in a place depends on the texts in others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import PrivacyError
from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import torch
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.seq_pate.plan import AnswersSpec
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models.lora import Trunk
from understudy.models.machine import one_core, single_threaded_inference, worker_pool
from understudy.models.training import AdamW, Block, LearningRate, LoRA, Shapes, TokenRow, logits_of, losses_of
from understudy.privacy.measurement import Engine, PlannedQuery
from understudy.privacy.mechanisms import COUNT_GRID

R = TypeVar("R")


@dataclass(frozen=True)
class Recipe:
    """How every teacher is trained (``batch`` texts per step), and how many teachers are trained in one pass.
    Public."""

    steps: int
    batch: int
    rate: float
    group: int

    @property
    def slots(self) -> int:
        """Return the largest number of texts that a teacher reads."""
        return self.steps * self.batch


@dataclass(frozen=True, eq=False, repr=False)
class Faculty:
    """Trains teachers and computes their answers: the base model, divided below the blocks that the teachers' adapters
    change."""

    lora: LoRA  # the adapters of the blocks above the cut; its weights are one teacher's
    trunk: Trunk
    tuned: TunedModel  # the form in which texts are read
    recipe: Recipe

    @cached_property
    def public(self) -> TokenRow:
        """Return the row for a teacher without records: a prompt without a text."""
        return TokenRow(self.tuned.instructions.prompts[0], np.zeros(0, dtype=np.int32))

    @property
    def head(self) -> Any:
        head = self.lora.causal.head
        assert head is not None, "the trunk has seen that there is one"
        return head

    @cached_property
    def shapes(self) -> Shapes:
        """Return the shapes of blocks: training texts have the longest shape, questions the shortest one that fits."""
        return self.tuned.shapes()

    def block(self, rows: Sequence[TokenRow], *, width: int | None = None) -> Block:
        """Return all rows as one block of a fixed shape."""
        width, device = width or self.shapes.widths[-1], self.lora.causal.device
        return Block.of(rows, width=width, prompt=self.shapes.prompt, size=len(rows), device=device)

    @one_core()
    def train(self, shards: Sequence[Sequence[TokenRow]]) -> NDArray[np.float32]:
        """Train the adapters of one group of teachers, ``Float32[G, P]``, on one shard each."""
        recipe, device = self.recipe, self.lora.causal.device
        lengths = [min(len(shard), recipe.slots) for shard in shards]
        slots = []
        for slot in range(max(1, *lengths)):
            block = self.block([shard[slot] if slot < len(shard) else self.public for shard in shards])
            with torch.inference_mode():
                states = self.trunk.below(block.tokens[:, :-1])
            slots.append((block, states.clone()))
        start = np.tile(self.lora.start(), (len(shards), 1))
        optimizer = AdamW(start, LearningRate(recipe.rate, recipe.steps), device=device)
        for step in range(recipe.steps):
            chosen = [
                [(step * recipe.batch + number) % max(1, length) for number in range(recipe.batch)]
                for length in lengths
            ]
            optimizer.step(self._gradient(slots, chosen, optimizer.weights))
        return optimizer.weights

    def _gradient(
        self, slots: Sequence[tuple[Block, Any]], chosen: Sequence[Sequence[int]], weights: NDArray[np.float32]
    ) -> Any:
        """Return the gradient of each teacher's mean loss over its ``chosen`` texts, ``Float32[G, P]``."""
        places = [(slot, place) for place, each in enumerate(chosen) for slot in each]

        def of(parts: Sequence[Any]) -> Any:
            return torch.stack([parts[slot][place] for slot, place in places])

        blocks = [block for block, _ in slots]
        tokens, first, counts = (of([getattr(each, name) for each in blocks]) for name in ("tokens", "first", "counts"))
        block = Block(tokens, first, counts, blocks[0].width)
        leaf = torch.tensor(weights, device=block.tokens.device, requires_grad=True)
        with torch.enable_grad(), self.lora.adapters.active(self.lora.stacked(leaf)):
            states = self.trunk.above(block.tokens[:, :-1], of([states for _, states in slots]))
            losses = losses_of(logits_of(self.head, states, block), block).sum(1) / block.counts.clamp(min=1)
            (found,) = torch.autograd.grad(losses.sum() / len(chosen[0]), leaf)
        return found

    def active(self, weights: NDArray[np.float32]) -> Any:
        """Return a context in which, in this thread, the blocks above the cut compute with a group's adapters."""
        stacked = self.lora.stacked(torch.tensor(weights, device=self.lora.causal.device))
        return self.lora.adapters.active(stacked)


@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """The weights of the teachers of one pass, ``Float32[G, P]``. The first ``real`` are teachers, the others only fill
    the group. Private; its ``repr`` shows nothing."""

    weights: NDArray[np.float32]
    real: int


@dataclass(frozen=True, eq=False, repr=False)
class Teachers:
    """All teachers, group by group. Trained groups are stored in the private ``folder``, so that a killed run resumes.

    Implements :class:`~understudy.privacy.measurement.Batches`, and :class:`~understudy.privacy.measurement.Divided`
    with groups as parts. Memory: the tokens of all texts that are read, and what a group takes, once per worker.
    ``kind`` is that of the machines that train (:func:`kind_of_teachers`).
    """

    faculty: Faculty
    count: int
    corpus: BoundedCorpus
    folder: Path
    say: Callable[[str], None] = lambda _line: None
    kind: str = ""

    def batches(self) -> Iterator[Group]:
        """Yield every teacher once, in order."""
        self.train()
        for each in self._kept:
            yield from each.batches()

    @property
    def engine(self) -> Engine | None:
        return self.corpus.engine

    def map(self, function: Callable[[Any], R]) -> Iterator[R]:
        """Call ``function`` with each group of teachers on the engine, and yield its results.

        Without an engine, it is called once, with all teachers."""
        if self.engine is None:
            yield function(self)
        else:
            self.train()
            yield from self.engine.map(function, self._kept)

    @property
    def groups(self) -> int:
        return -(-self.count // self.faculty.recipe.group)

    def train(self) -> None:
        """Train the groups that are not stored yet."""
        private_folder(self.folder)
        size = self.faculty.recipe.group
        missing = [number for number, each in enumerate(self._kept) if not each.file.exists()]
        if not missing:
            return
        shards = [*self._shards, *[[]] * (-self.count % size)]
        groups = [(self._kept[number].file, shards[number * size : (number + 1) * size]) for number in missing]
        one = partial(_train, self.faculty)
        if self.engine is not None:
            self._report(self.engine.map(one, groups), missing=len(missing))
        else:
            with worker_pool(self.faculty.lora.causal.device) as pool:
                self._report(pool.map(one, groups), missing=len(missing))

    def _report(self, trained: Iterable[None], *, missing: int) -> None:
        for done, _ in enumerate(trained, 1):
            if done == missing or done % 10 == 0:
                teachers = min(self.count, (self.groups - missing + done) * self.faculty.recipe.group)
                self.say(f"{teachers} of {self.count} teachers are trained.")

    @cached_property
    def _kept(self) -> list[_Kept]:
        """Return all groups. Groups of another size or kind of machine (of a killed run) have other names and are not
        used: a shard might be in two groups, or its teacher depend on the machine that trained it."""
        size = self.faculty.recipe.group
        names = (f"teachers-{self.kind}-{size}-{number}.npy" for number in range(self.groups))
        return [_Kept(self.folder / name, min(size, self.count - number * size)) for number, name in enumerate(names)]

    @cached_property
    def _shards(self) -> list[list[TokenRow]]:
        """Read the rows of each teacher, in the order of their hashes."""
        found: list[list[tuple[int, str, TokenRow]]] = [[] for _ in range(self.count)]
        most = self.faculty.recipe.slots
        for batch in self.corpus.batches():
            for text, label, number in zip(batch.texts, batch.labels.tolist(), batch.hashes(), strict=True):
                shard = found[number % self.count]
                shard.append((number, f"{label} {text}", self.faculty.tuned.row(text, label)))
                if len(shard) >= 4 * most:
                    _cut(shard, most)
        for shard in found:
            _cut(shard, most)
        return [[row for _, _, row in shard] for shard in found]


@dataclass(frozen=True)
class _Kept:
    """A :class:`Group` on disk."""

    file: Path
    real: int

    def batches(self) -> Iterator[Group]:
        yield Group(np.load(self.file), self.real)


def _train(faculty: Faculty, group: tuple[Path, Sequence[Sequence[TokenRow]]]) -> None:
    path, shards = group
    with atomic_file(path, mode=PRIVATE_MODE) as file:
        np.save(file, faculty.train(shards))


def _cut(shard: list[tuple[int, str, TokenRow]], most: int) -> None:
    """Keep the first by hash; an owner's records share one hash, and are then in their own order."""
    shard.sort(key=lambda each: each[:2])
    del shard[most:]


def _computed(faculty: Faculty, weights: NDArray[np.float32]) -> list[Any]:
    """Return a group's states and some of its logits for a public question of each width, computed as answers are."""
    found, size, device = [], len(weights), faculty.lora.causal.device
    candidates = torch.arange(min(_CANDIDATES, faculty.lora.causal.vocabulary), device=device)
    for width in faculty.shapes.widths:
        tokens = faculty.block([faculty.public], width=width).tokens[:, :-1]
        with single_threaded_inference(), faculty.active(weights):
            states = faculty.trunk.below(tokens).expand(size, -1, -1)
            above = faculty.trunk.above(tokens.expand(size, -1), states)
            found += [above, faculty.head.of(candidates)(above[:, -1])]
    return found


_CANDIDATES, _SEED = 50, 5


def _public_shard(faculty: Faculty, generator: np.random.Generator, texts: int) -> list[TokenRow]:
    prompt, vocabulary = faculty.tuned.instructions.prompts[0], faculty.lora.causal.vocabulary
    lengths = generator.integers(1, faculty.tuned.tokens + 2, size=texts).tolist()
    return [TokenRow(prompt, generator.integers(vocabulary, size=length).astype(np.int32)) for length in lengths]


def _public_group(faculty: Faculty, generator: np.random.Generator) -> list[list[TokenRow]]:
    most = faculty.recipe.slots + 1
    return [_public_shard(faculty, generator, number % most) for number in range(faculty.recipe.group)]


def kind_of_teachers(faculty: Faculty) -> str:
    """Train one group of teachers on public texts on this machine, and return a digest of the resulting bits and of the
    computations used.

    Machines that differ in it train different teachers, which must not be mixed: scheduling, and so the records of
    others, would decide which machine trains a teacher.
    """
    weights = faculty.train(_public_group(faculty, np.random.default_rng(_SEED)))
    return _digest(weights, _computed(faculty, weights))


def _digest(weights: NDArray[np.float32], computed: Sequence[Any]) -> str:
    found = hashlib.sha256(weights.tobytes())
    for each in computed:
        found.update(each.double().cpu().numpy().tobytes())
    return found.hexdigest()[:32]


def require_separate_teachers(faculty: Faculty, engine: Engine | None = None) -> str:
    """Test on this device that a group's teachers do not change one another, in training and in later computations.
    Returns the :func:`kind_of_teachers` here.

    With an engine, test instead each kind of its workers, and that all workers, including those that join later, train
    and compute the same teachers. Returns their kind.

    A group is trained on random public texts; then once more for each half of its teachers, with other texts for the
    other half, or none.

    Raises PrivacyError: a teacher's adapters or its answers change with the texts of the others.
    """
    if engine is not None:
        engine.ask(partial(require_separate_teachers, faculty))
        return engine.ask(partial(kind_of_teachers, faculty), always=True)
    generator, size = np.random.default_rng(_SEED), faculty.recipe.group
    one = _public_group(faculty, generator)
    changed = [
        [
            each if number % 2 == kept else _public_shard(faculty, generator, (size - number) % 3)
            for number, each in enumerate(one)
        ]
        for kept in range(min(2, size))
    ]
    with worker_pool(faculty.lora.causal.device) as pool:
        first, *others = pool.map(faculty.train, (one, *changed))
        before, *after = pool.map(partial(_computed, faculty), (first, *others))
    same = all(
        np.array_equal(first[kept::2], other[kept::2])
        and all(torch.equal(mine[kept::2], its[kept::2]) for mine, its in zip(before, found, strict=True))
        for kept, (other, found) in enumerate(zip(others, after, strict=True))
    )
    if not same:
        raise PrivacyError(
            f"On this device, the texts of one teacher (LoRA on {faculty.lora.causal.model_id}) change the training of "
            "others, so the influence of one record would have no bound.",
            "Choose a rank that is a multiple of 4 (--lora-rank), or set UNDERSTUDY_DTYPE=float32.",
        )
    return _digest(first, before)


_SHORT = 1 - 2**-20
"""More than rounding adds to the sum of an answer, however many candidates it has. (In float32 it would add 3e-4 for a
likely token among 150,000 unlikely ones.)"""


@dataclass(frozen=True, eq=False)
class Questions:
    """Positions in pseudo-sentences, and the candidate tokens of their answers. Public, or made from released values.

    Args:
        prior: ``Float32[Q, K]``, the student's probabilities of them when it asked, adding up to 1.
    """

    rows: Sequence[TokenRow]  # the pseudo-sentences
    row: NDArray[np.int32]  # ``Int32[Q]``, the pseudo-sentence of each question
    place: NDArray[np.int32]  # ``Int32[Q]``, the target asked for
    candidates: NDArray[np.int32]  # ``Int32[Q, K]``; -1 fills up
    prior: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, eq=False, repr=False)
class TeacherAnswers(PlannedQuery[Group, AnswersSpec]):
    """For each question, the sum of all teachers' answers: distributions over the question's candidates.

    Guarantee:
        Unit: a record, or an owner, whose records are all in one shard.
        Sensitivity: a teacher's answers are a function of its own shard and of public or released values alone
            (:class:`Faculty`), so adding or removing a unit changes the answers of one teacher from a to a'; there are
            as many teachers with it as without it. Each answer is integers of 0 or more that add up to at most G =
            COUNT_GRID: probabilities of the candidates, shortened by 2^-20 and rounded down, or G for the first choice.
            So |a_q - a'_q|_2^2 <= |a_q|^2 + |a'_q|^2 <= 2 G^2 and |a_q - a'_q|_1 <= 2 G for each of the Q questions:
            sqrt(2 Q) G in L2 and 2 Q G in L1 for all of them. NaN counts as 0.
        Source: Tian et al. 2022 (SeqPATE), with the noise on the sum.
    """

    faculty: Faculty
    questions: Questions
    kind: Literal["probabilities", "votes"] = "probabilities"

    @property
    def found(self) -> tuple[int, ...]:
        return self.questions.candidates.shape

    def of_batch(self, batch: Group) -> NDArray[np.int64]:
        found = np.zeros(self.shape, dtype=np.int64)

        def answer(sentence: Sentence) -> None:
            with single_threaded_inference(), self.faculty.active(batch.weights):
                size = len(batch.weights)
                above = self.faculty.trunk.above(sentence.tokens.expand(size, -1), sentence.states.expand(size, -1, -1))
                read = above[:, sentence.places]
                found[sentence.asked] = self._of(read, self.questions.candidates[sentence.asked], batch.real)

        with worker_pool(self.faculty.lora.causal.device) as pool:
            list(pool.map(answer, self._sentences))
        return found

    def _of(self, read: Any, candidates: NDArray[np.int32], real: int) -> NDArray[np.int64]:
        """Return the first ``real`` teachers' answers, ``Int64[q, K]``, from the head's inputs ``Float[G, q, H]``."""
        found = np.zeros(candidates.shape, dtype=np.int64)
        for number, columns in enumerate(candidates):
            asked = columns >= 0
            tokens = torch.from_numpy(columns[asked]).to(read.device).long()
            logits = self.faculty.head.of(tokens)(read[:, number]).double()
            if self.kind == "votes":
                shares = torch.nn.functional.one_hot(logits.argmax(1), len(tokens)).double()
            else:
                shares = logits.softmax(1) * _SHORT
            whole = (shares.nan_to_num(nan=0.0) * COUNT_GRID).floor().long()
            found[number, asked] = whole[:real].sum(0).cpu().numpy()
        return found

    @cached_property
    def _sentences(self) -> list[Sentence]:
        """Return each sentence up to the last question about it, in the shortest shape that fits."""
        found = []
        for number in np.unique(self.questions.row).tolist():
            asked = np.flatnonzero(self.questions.row == number)
            place, row = self.questions.place[asked], self.questions.rows[number]
            row = TokenRow(row.prompt, row.target[: int(place.max()) + 1])
            block = self.faculty.block([row], width=self.faculty.shapes.width_of(row))
            tokens = block.tokens[:, :-1]
            with single_threaded_inference():
                states = self.faculty.trunk.below(tokens)
            found.append(Sentence(tokens, states, (len(row.prompt) - 1 + place).tolist(), asked))
        return found


@dataclass(frozen=True, eq=False)
class Sentence:
    """A pseudo-sentence about which the teachers are asked."""

    tokens: Any  # ``Int64[1, L]``
    states: Any  # of the trunk, ``Float[1, L, H]``
    places: list[int]  # of the states that the head reads
    asked: NDArray[np.intp]  # the numbers of its questions

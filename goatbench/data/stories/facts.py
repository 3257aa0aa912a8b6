"""Five kinds of small stories with a question of one right word, after the first five tasks of bAbI (Weston et al., arXiv 1502.05698).

The worlds (who, where, what) are bAbI's, so that its answers are ours; the sentences are our own. A story is a function of the numbers
that it is given. Words are lower-case, "." and "?" are words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
PEOPLE = ("daniel", "john", "mary", "sandra")
GIVERS = ("bill", "fred", "jeff", "mary")
OBJECTS = ("apple", "football", "milk")
DIRECTIONS = ("north", "south", "east", "west")
MOVES = ("went to the", "walked to the")
TAKES = ("took the", "grabbed the")
DROPS = ("dropped the", "left the")
GIVES = ("gave", "handed")

LABELS = dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), ROOMS) | {"qa5": (*GIVERS, *OBJECTS)}  # what an answer can be: bAbI's own sets
MAX_FACTS = 6
MAX_WORDS = 43  # of all facts and the question
NUM_NUMBERS = 40  # that a story takes at most

_QUESTIONS = "where is was the before what of who did give to received gave"
WORDS = tuple(
    dict.fromkeys(
        " ".join((*ROOMS, *PEOPLE, *GIVERS, *OBJECTS, *DIRECTIONS, *MOVES, *TAKES, *DROPS, *GIVES, _QUESTIONS)).split()
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Story:
    """facts in their order, each a sentence; all as words."""

    facts: list[list[str]]
    question: list[str]
    answer: str


class Dice:
    """Choices from numbers in [0, 1), taken one after the other."""

    def __init__(self, numbers: Iterable[float]) -> None:
        self._numbers = iter(numbers)

    def below(self, count: int) -> int:
        return int(next(self._numbers) * count)

    def choose(self, options: Sequence[str]) -> str:
        return options[self.below(len(options))]

    def sample(self, options: Iterable, count: int) -> list:
        """`count` different ones, in a random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def merge(self, core: list[str], others: list[str]) -> list[str]:
        """Both lists in one, each in its own order."""
        slots = sorted(self.below(len(core) + 1) for _ in others)
        merged = list(core)
        for slot, other in reversed(list(zip(slots, others, strict=True))):
            merged.insert(slot, other)
        return merged


def _moved(dice: Dice, person: str, room: str) -> str:
    return f"{person} {dice.choose(MOVES)} {room} ."


def _took(dice: Dice, person: str, thing: str) -> str:
    return f"{person} {dice.choose(TAKES)} {thing} ."


def _story(facts: list[str], question: str, answer: str) -> Story:
    return Story([fact.split() for fact in facts], question.split(), answer)


def one_fact(dice: Dice) -> Story:
    """qa1: where somebody is, from 2 to 5 moves of several people; the last move of the one asked for counts."""
    where: dict[str, str] = {}
    facts = []
    for _ in range(2 + dice.below(4)):
        person = dice.choose(PEOPLE)
        room = dice.choose([room for room in ROOMS if room != where.get(person)])
        where[person] = room
        facts.append(_moved(dice, person, room))
    person = dice.choose(tuple(where))
    return _story(facts, f"where is {person} ?", where[person])


def two_facts(dice: Dice) -> Story:
    """qa2: where a thing is: with whom has it, or where it was dropped."""
    holder, other = dice.sample(PEOPLE, 2)
    first, second = dice.sample(ROOMS, 2)
    thing, decoy = dice.sample(OBJECTS, 2)
    core, end = [_moved(dice, holder, first), _took(dice, holder, thing)], dice.below(3)
    if end == 1:
        core.append(f"{holder} {dice.choose(DROPS)} {thing} .")
    if end > 0:
        core.append(_moved(dice, holder, second))
    others = [_moved(dice, other, dice.choose(ROOMS)), _took(dice, other, decoy)][: dice.below(3)]
    return _story(dice.merge(core, others), f"where is the {thing} ?", second if end == 2 else first)


def three_facts(dice: Dice) -> Story:
    """qa3: where a carried thing was before it came to a room."""
    holder, other = dice.sample(PEOPLE, 2)
    path = dice.sample(ROOMS, 2 + dice.below(2))
    thing = dice.choose(OBJECTS)
    core = [_moved(dice, holder, room) for room in path]
    core.insert(1, _took(dice, holder, thing))
    others = [_moved(dice, other, dice.choose(ROOMS)) for _ in range(dice.below(3))]
    at = 1 + dice.below(len(path) - 1)
    return _story(dice.merge(core, others), f"where was the {thing} before the {path[at]} ?", path[at - 1])


def two_arguments(dice: Dice) -> Story:
    """qa4: three rooms in a row; which one lies on the asked side of the middle one. The order of the arguments decides."""
    first, middle, last = dice.sample(ROOMS, 3)
    side = dice.choose(DIRECTIONS)
    facts = dice.sample((f"the {first} is {side} of the {middle} .", f"the {middle} is {side} of the {last} ."), 2)
    if dice.below(2):
        return _story(facts, f"what is {side} of the {middle} ?", first)
    return _story(facts, f"what is the {middle} {side} of ?", last)


def three_arguments(dice: Dice) -> Story:
    """qa5: who gave what to whom, of 1 to 3 gifts of different things between different pairs."""
    count = 1 + dice.below(3)
    pairs = dice.sample([(a, b) for a in GIVERS for b in GIVERS if a != b], count)
    gifts = [(giver, thing, taker) for (giver, taker), thing in zip(pairs, dice.sample(OBJECTS, count), strict=True)]
    core = [f"{giver} {dice.choose(GIVES)} the {thing} to {taker} ." for giver, thing, taker in gifts]
    others = [_moved(dice, dice.choose(GIVERS), dice.choose(ROOMS)) for _ in range(dice.below(3))]
    giver, thing, taker = gifts[dice.below(count)]
    question, answer = (
        (f"who gave the {thing} to {taker} ?", giver),
        (f"who gave the {thing} ?", giver),
        (f"what did {giver} give to {taker} ?", thing),
        (f"who did {giver} give the {thing} to ?", taker),
        (f"who received the {thing} ?", taker),
    )[dice.below(5)]
    return _story(dice.merge(core, others), question, answer)


KINDS: dict[str, Callable[[Dice], Story]] = {
    "qa1": one_fact,
    "qa2": two_facts,
    "qa3": three_facts,
    "qa4": two_arguments,
    "qa5": three_arguments,
}

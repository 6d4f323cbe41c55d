"""Words that are said in two ways, told apart by their neighbours where that is cheap; elsewhere the lexicon's way stands.

No tagger: a word after "to", "will" or "they" is taken for a verb, one after "the" or "my" for a noun. That is wrong now
and then, but less often than one pronunciation for both.
"""

from __future__ import annotations

from typing import Final

__all__ = ["homograph"]

_VERB: Final = frozenset(
    (
        "to will would can could should may might must shall cannot can't won't don't didn't doesn't wouldn't couldn't "
        "shouldn't not let's please i you we they who i'll you'll we'll they'll he'll she'll it'll i'd you'd we'd they'd"
    ).split()
)
_NOUN: Final = frozenset(
    (
        "the a an this that these those my your his her its our their no any some each every of in on for with by from new "
        "old first second last next own another world"
    ).split()
)
_OBJECT: Final = frozenset("the a an this that these those my your his her its our their it me him us them all".split())

_STRESSED: Final[dict[str, tuple[str, str]]] = {
    "conduct": ("k aa1 n d ah0 k t", "k ax0 n d ah1 k t"),
    "conflict": ("k aa1 n f l ih0 k t", "k ax0 n f l ih1 k t"),
    "contest": ("k aa1 n t eh0 s t", "k ax0 n t eh1 s t"),
    "contract": ("k aa1 n t r ae1 k t", "k ax0 n t r ae1 k t"),
    "convert": ("k aa1 n v er0 t", "k ax0 n v er1 t"),
    "converts": ("k aa1 n v er0 t s", "k ax0 n v er1 t s"),
    "convict": ("k aa1 n v ih0 k t", "k ax0 n v ih1 k t"),
    "export": ("eh1 k s p ao0 r t", "ih0 k s p ao1 r t"),
    "import": ("ih1 m p ao0 r t", "ih0 m p ao1 r t"),
    "increase": ("ih1 n k r iy1 s", "ih0 n k r iy1 s"),
    "insult": ("ih1 n s ax0 l t", "ih0 n s ah1 l t"),
    "object": ("aa1 b jh eh0 k t", "ax0 b jh eh1 k t"),
    "permit": ("p er1 m ih0 t", "p er0 m ih1 t"),
    "present": ("p r eh1 z ax0 n t", "p r ih0 z eh1 n t"),
    "produce": ("p r ow1 d uw0 s", "p r ax0 d uw1 s"),
    "progress": ("p r aa1 g r eh1 s", "p r ax0 g r eh1 s"),
    "project": ("p r aa1 jh eh0 k t", "p r ax0 jh eh1 k t"),
    "protest": ("p r ow1 t eh0 s t", "p r ax0 t eh1 s t"),
    "rebel": ("r eh1 b ax0 l", "r ih0 b eh1 l"),
    "record": ("r eh1 k er0 d", "r ih0 k ao1 r d"),
    "refuse": ("r eh1 f y uw0 s", "r ax0 f y uw1 z"),
    "subject": ("s ah1 b jh ih0 k t", "s ax0 b jh eh1 k t"),
    "suspect": ("s ah1 s p eh1 k t", "s ax0 s p eh1 k t"),
    "transfer": ("t r ae1 n s f er0", "t r ae0 n s f er1"),
    "use": ("y uw1 s", "y uw1 z"),
    "abuse": ("ax0 b y uw1 s", "ax0 b y uw1 z"),
    "excuse": ("ih0 k s k y uw1 s", "ih0 k s k y uw1 z"),
    "house": ("hh aw1 s", "hh aw1 z"),
    "close": ("k l ow1 s", "k l ow1 z"),
    "separate": ("s eh1 p r ax0 t", "s eh1 p er0 ey0 t"),
    "estimate": ("eh1 s t ax0 m ax0 t", "eh1 s t ax0 m ey0 t"),
    "graduate": ("g r ae1 jh ax0 w ax0 t", "g r ae1 jh ax0 w ey0 t"),
    "alternate": ("ao1 l t er0 n ax0 t", "ao1 l t er0 n ey0 t"),
    "duplicate": ("d uw1 p l ax0 k ax0 t", "d uw1 p l ax0 k ey0 t"),
}
"""Word → (noun or adjective, verb)."""
_LIVE_SHOWS: Final = frozenset(
    (
        "music show shows concert concerts stream streams broadcast broadcasts performance performances audience band "
        "event events demo demos data session sessions chat chats feed feeds webinar webinars interview interviews class "
        "classes caption captions captioning transcription translation recording recordings album albums version versions "
        "footage ammunition ammo bait birth births camera cameras preview previews site server servers speech audio vocals "
        "traffic monitoring blog tv television coverage update updates video wire wires animals from"
    ).split()
)
_GOES_LIVE: Final = frozenset(
    "a the this watch watched broadcast go goes going went gone stream streamed streaming aired recorded performed".split()
)
_LIVER: Final = frozenset(
    (
        "he she it who that which one everyone everybody nobody somebody someone anyone also still now always currently"
    ).split()
)
_PLACE: Final = frozenset(
    (
        "in on at with here there alone near nearby under underground within among inside outside abroad next forever "
        "together upstairs downstairs by across beside beyond behind between off"
    ).split()
)
"""After "lives", the verb."""
_SPARED: Final = frozenset(
    (
        "save saves saved saving lose loses lost losing claim claimed claiming cost costs change changes changed changing "
        "risk risked risking take taken took spare spared ruin ruined affect affects affected transform transforms "
        "transformed touch touched improve improves improved destroy destroyed live lived people's human many more several "
        "few two nine double past private public daily normal whole real entire american innocent young"
    ).split()
)
"""Before "lives", the plural of life."""
_CATCH: Final = frozenset(
    "sea largemouth smallmouth striped black catch catching caught fried grilled baked pound spotted".split()
)
_FISHING: Final = frozenset(
    "fishing boat boats fisherman fishermen tournament fillet fillets fishery swim swam".split()
)
_BE: Final = frozenset("is are was were am we're you're they're i'm it's he's she's".split())
_METAL: Final = frozenset(
    "paint pipe pipes poisoning pencil pencils acid battery batteries levels exposure shot ore dust weights".split()
)
_USERS: Final = frozenset("people children men women and also often usually then".split())
_AFTER_NOUN: Final = frozenset(("", "of", "in", "for", "by", "is", "was", "as", "case", "cases"))


def homograph(word: str, before: str, after: str) -> tuple[str, ...] | None:
    """The phones of `word` between its neighbours, or None where the lexicon decides.

    Args:
        word: in lower case, as are the others.
        before: the word before it in the same clause, "" at its beginning.
        after: the word after it in the same clause, "" at its end.
    """
    said = _said(word, before, after)
    return tuple(said.split(" ")) if said else None


def _said(word: str, before: str, after: str) -> str | None:
    if word in _STRESSED:
        noun, verb = _STRESSED[word]
        if before in _VERB and (
            word not in ("close", "separate", "present", "subject") or before not in ("not", "who")
        ):
            return verb
        if after in _OBJECT and (not before or (word == "use" and before not in _NOUN)):
            return verb
        if word == "use" and (before in _USERS or before.endswith("s")) and after not in _AFTER_NOUN:
            return verb
        if word in ("convert", "converts"):
            return noun if before in _NOUN else verb
        return noun if before in _NOUN or word in ("use", "house", "close") else None
    if word == "read":
        present = before in _VERB or (not before and after in _OBJECT)
        return "r iy1 d" if present else None
    if word == "lead":
        return "l eh1 d" if after in _METAL or before == "of" else "l iy1 d"
    if word == "live":
        shown = before in _GOES_LIVE or (before in _BE and not after)
        shown = shown or (after in _LIVE_SHOWS and before not in _VERB)
        return "l ay1 v" if shown else "l ih1 v"
    if word == "lives":
        someone = before in _LIVER or (after in _PLACE and before not in _SPARED | _NOUN and not before.endswith("'s"))
        return "l ih1 v z" if someone else "l ay1 v z"
    if word == "bass":
        fish = before in _CATCH or after in _FISHING
        return "b ae1 s" if fish else "b ey1 s"
    if word == "wind" and (
        after in ("up", "down", "back", "around", "through") or (before == "to" and after in _OBJECT)
    ):
        return "w ay1 n d"
    if word == "wound":
        return "w aw1 n d" if after in ("up", "down", "around") else "w uw1 n d"
    return None

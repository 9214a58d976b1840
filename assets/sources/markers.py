"""Markers: values that say "no node" or "no label" where an id or a class stands, such as -1, None and unknown.

A file does not say that they are markers. They are found by their form, and told with the way out; nothing is refused or changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.types import Array

NONE = (
    "none|null|nil|nan|nat|na|void|missing|undefined|undef|unknown|unk|empty|blank|unlabell?ed|unclassified|unspecified|undetermined|unset|nolabel|noclass"
    "|uncategori[sz]ed|unassigned|unannotated|unavailable|tbd|tba|n [adk]|k a|s o"
)
"""Words for nothing."""
THING = (
    "label|labels|labell?ed|class|classes|classified|category|known|available|applicable|value|data|set|given|specified|determined|assigned"
    "|annotated|defined|provided|recorded|found|yet|node|id|type|information|info|answer|user|entry|pd|np"
)
"""Words that say what is missing."""
FOREIGN = (
    "unbekannt|leer|keine?|keine angabe|inconnue?|vide|desconocid[oa]|sin datos|desconhecid[oa]|sconosciut[oa]|vuoto|onbekend|okänd|ukendt"
    "|ukjent|nieznany|brak|brak danych|neznámý|bilinmiyor|неизвестно|неизв|нет|нет данных|невідомо|άγνωστο|غير معروف"
    "|未知|不明|不詳|未标注|未定义|缺失|无|なし|미정|없음"
)
"""Words for nothing in other languages."""
SIGNS, PUNCTUATION = r"[\s_\-./\\#<>\[\](){}'\"`!?*:;,\u2013\u2014\u2212…~·•]+", r"[,:;!'\"`()\[\]{}]"
"""Signs around and between such words; a text of these signs alone says nothing, too, but for punctuation, a class of words."""
MISSING = (
    f"(({THING}) )*({NONE})( ({THING}|{NONE}))*|(no|not|non|without)( ({THING}))+|to be ({THING})|dont know|don t know|{FOREIGN}"
    "|0{8}( 0{4}){3} 0{12}"
)
"""A text in small letters that says that there is nothing, with a blank in place of each run of signs."""
OF_IDS, OF_CLASSES = r"(deleted|removed|anonymous|anonymi[sz]ed)( (user|account))?", "ignored?"
"""What says so of an id, and of the name of a class alone."""
CODE = r"^[A-Z]{2}$"
"""A code of two letters, of countries for example, among which NA is one."""

MOST_COMPARED = 2_000_000
"""Most different texts that are compared."""
DOUBLE_DIGITS, SHIFTED, SHEET_DIGITS = 53, 1 << 20, 15
"""Bits of the whole numbers that float64 tells apart, a factor that programs put in ids, and decimal digits that a spreadsheet keeps."""
NUMBER = r"^[+-]?\d{1,40}(\.0*)?$"
LIMITS = frozenset(2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 63, 64))
"""Largest values of integer types: -1 of an unsigned type, and what programs write for infinity."""
FEW = 3
"""Most different ids below 0 that are markers beside ids from 0, and most numbers that are markers beside names."""
FAR, LEAST = 10, 10
"""How many times as far from all other ids a marker such as 9999 or 0 is, and the ids that there are at least."""


def is_bound(number: int) -> bool:
    """Tells whether a number is the largest of a type, or of nines: 99, 999, 9999."""
    return number in LIMITS or (number >= 99 and set(str(number)) == {"9"})


def marked_numbers(values: Array, least: int = LEAST) -> list[int]:
    """Returns the places of ids that look like markers.

    Args:
        values: different integers[N] in ascending order.
        least: ids from which a large one, or 0, may be a marker.
    """
    if len(values) < 2:
        return []
    below = int(np.searchsorted(values, 0))
    found = list(range(below)) if below <= FEW and below < len(values) - below else []
    last, before = int(values[-1]), int(values[-2])
    if len(values) >= least and is_bound(last) and last >= FAR * max(1, before):
        found.append(len(values) - 1)
    if len(values) >= LEAST and int(values[0]) == 0 and int(values[1]) >= 100:
        steps = (before - int(values[1])) / (len(values) - 2)
        found += [0] if int(values[1]) > FAR * steps else []
    return found


def marked_texts(names: Any, also: str = OF_IDS, least: int = LEAST) -> list[int]:
    """Returns the places of texts that look like markers: words for nothing, or numbers that stand out.

    Args:
        names: different texts[N], a sequence or a Polars series.
        also: pattern of further words for nothing.
        least: as for `marked_numbers`, if all are numbers.
    """
    import polars

    texts = polars.Series("text", names, dtype=polars.String).fill_null("").str.strip_chars()
    small = (texts if len(texts) > MOST_COMPARED else texts.str.normalize("NFKC")).str.to_lowercase()
    plain = small.str.replace_all(SIGNS, " ").str.strip_chars()
    said = (
        plain.str.contains(f"^({MISSING}|{also})$")
        | (small == "\\n")
        | ((plain == "") & ~small.str.contains(PUNCTUATION))
    )
    codes = texts.str.contains(CODE)
    if 2 * codes.sum() > len(texts):
        said = said & ~codes
    found, numbers = said.arg_true().to_list(), texts.str.contains(NUMBER).arg_true()
    if 0 < len(numbers) == len(texts):
        order = texts.cast(polars.Float64, strict=False).arg_sort()
        extremes = order.to_list() if len(order) <= 1 << 16 else [*order.head(1 << 15), *order.tail(1 << 15)]
        ids = np.array([_whole(texts[place]) for place in extremes], object)
        found += [extremes[place] for place in marked_numbers(ids, least)]
    elif 0 < len(numbers) <= FEW:
        found += [place for place in numbers.to_list() if _whole(texts[place]) < 0 or is_bound(_whole(texts[place]))]
    return sorted({*found})


def several_labels(names: Sequence[str]) -> list[str]:
    """Returns a sentence about names of classes that look like lists of several labels, such as a;b beside a; none without."""
    for sign in ";|,":
        lists = {name: {part.strip() for part in name.split(sign)} for name in names if sign in name.strip(sign)}
        known = [
            name
            for name, parts in lists.items()
            if parts <= {*names}.union(*(p for n, p in lists.items() if n != name))
        ]
        if known:
            way = 'keep one of them, or give a column of 0 and 1 for each, with [task] kind = "multilabel"'
            return [
                f"{len(known):,} names of classes look like several labels: {', '.join(map(repr, known[:3]))}. If so, {way}"
            ]
    return []


def unlike_others(names: Any) -> list[int]:
    """Returns the places of up to `FEW` ids without a digit, where all others have one form with digits, as u17 or ab-0c.

    Args:
        names: different texts[N], a sequence or a Polars series.
    """
    import polars

    if not LEAST <= len(names) <= MOST_COMPARED:
        return []
    texts = polars.Series("text", names, dtype=polars.String).fill_null("")
    forms = texts.str.replace_all(r"\p{L}+", "a").str.replace_all(r"[0-9]+", "0")
    usual = forms.mode()[0]
    odd = (forms != usual).arg_true().to_list()
    return odd if "0" in usual and 0 < len(odd) <= FEW and not any("0" in forms[place] for place in odd) else []


def _whole(text: str) -> int:
    return int(text.partition(".")[0])


def rounded_ids(values: Array) -> list[str]:
    """Returns a sentence about whole numbers that lost digits in float64 or in a spreadsheet; none without.

    Args:
        values: different integers[N] in ascending order.
    """
    large = values[values >= 1 << DOUBLE_DIGITS].astype(np.int64)
    if len(large) < LEAST:
        return []
    through = "floating-point numbers" if (large.astype(np.float64).astype(np.int64) == large).all() else ""
    digits = np.floor(np.log10(large.astype(np.float64))).astype(np.int64) + 1
    if (large % 10 ** np.maximum(digits - SHEET_DIGITS, 0) == 0).all():
        through = "a spreadsheet"
    if not through or (large % SHIFTED == 0).all():
        return []
    way = "Ids that differ in the lost digits are one node: write the tables again from where they have all digits"
    return [
        f"ids that look rounded: all {len(large):,} from 2^53 on are numbers that {through} can hold, such as {large[-1]}. {way}"
    ]


def written_alike(names: Any, what: str, one: str) -> list[str]:
    """Returns a sentence about texts that differ only in case, blanks, zeros around a number or the form of letters; none without.

    Args:
        names: different texts[N], a sequence or a Polars series.
        what, one: plural name of the texts, and singular name of the things that they name.
    """
    import polars

    if len(names) > MOST_COMPARED:
        return []
    texts = polars.Series("text", names, dtype=polars.String).fill_null("")
    plain = (
        texts.str.normalize("NFKC")
        .str.replace_all(r"[\s\u200b-\u200f\ufeff]+", " ")
        .str.strip_chars()
        .str.to_lowercase()
    )
    plain = plain.str.replace(r"^0+([0-9])", "$1").str.replace(r"^([0-9]+)\.0+$", "$1")
    again = plain.is_duplicated()
    if not again.any():
        return []
    first = plain.filter(again)[0]
    shown = ", ".join(repr(text) for text in texts.filter(plain == first)[:3])
    way = f"Write those alike that mean {one}"
    return [
        f"{int(again.sum()):,} {what} differ from another only in case, blanks, zeros or the form of letters: {shown}. {way}"
    ]

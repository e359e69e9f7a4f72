"""What a scan takes out of people's own words, and what it leaves as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.positives.privacy import find_leaks
from mitl.positives.scrubbing import MARK, Removed, Scrubber, scrub_all

WORKER, ASSIGNMENT, HIT = "A2SUAM1J3GNN3B", "3MMJ4C1ZQ7XKPL0SXSGXQNSDLDBBTC", "30XN0AASFL"
WORD_ID = "careful-worker"
IDS = (WORKER, ASSIGNMENT, HIT, WORD_ID)
AROUND = st.text("abcdefgh xyz0123 .,;:!?-_/@+()[]äß\n", max_size=25)
WORDS = st.lists(
    st.sampled_from(
        ["the", "dog", "is", "red,", "not", "brown;", "2", "cats", "(maybe", "3)", "on", "a", "T-shirt!"]
    )
).filter(lambda words: sum(word in ("2", "3)") for word in words) < 7)
"""Seven digits with nothing but such marks between them are a telephone number, however they are spaced."""


def scrubbed(text):
    return Scrubber(IDS).scrub(text)


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        (WORKER, Removed.ID),
        (WORKER.lower(), Removed.ID),
        (f"x{WORKER}y", Removed.ID),
        (ASSIGNMENT, Removed.ID),
        (HIT, Removed.ID),
        (WORD_ID.upper(), Removed.ID),
        ("jane.doe+mturk@example.co.uk", Removed.EMAIL),
        ("jane (at) example (dot) org", Removed.EMAIL),
        ("jane at example dot org", Removed.EMAIL),
        ("@jane_doe", Removed.EMAIL),
        ("jane@host", Removed.EMAIL),
        ("https://example.org/me?x=1", Removed.URL),
        ("www.example.org", Removed.URL),
        ("example.com", Removed.URL),
        ("bit.ly/3xYz", Removed.URL),
        ("192.168.0.12", Removed.URL),
        ("+49 (0)30 1234-567", Removed.PHONE),
        ("555 123 4567", Removed.PHONE),
        ("123456", Removed.NUMBER),
        ("d41d8cd9", Removed.CODE),
        ("A1B2C3D4E5F6G7", Removed.CODE),
    ],
)
def test_what_tells_who_somebody_is_goes(secret, kind):
    """Each kind is told apart, and the words around it stay."""
    found = scrubbed(f"it is blue {secret} and not red")

    assert found.text == f"it is blue {MARK} and not red"
    assert found.removed == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The man wears a red T-shirt, not a blue one.",
        "2 of the 3 dogs are seen; it's 10:30 on the clock.",
        "a 2-year-old girl, 1970s style, at the dot in the middle",
        "It is on the table.The cat is not",
        "café – naïve … ½ of it ✓ 🙂",
        "defaced feedback",
    ],
)
def test_plain_words_stay_letter_for_letter(text):
    """Short numbers, hyphens, times, accents and signs are nobody's address."""
    assert scrubbed(text) == Scrubber().scrub(text)
    assert (scrubbed(text).text, scrubbed(text).removed) == (text, {})


@given(AROUND, st.sampled_from(IDS), AROUND)
def test_no_id_survives_wherever_it_stands(before, secret, after):
    """Neither as it is nor in other letters, as the check of a release sees it."""
    for shown in (secret, secret.lower(), secret.upper()):
        text = scrubbed(before + shown + after).text

        assert secret.casefold() not in text.casefold()
        assert not find_leaks({"texts": text.encode()}, {"id": IDS})


@given(AROUND, st.from_regex(r"[a-z]{1,8}@[a-z]{1,8}\.(com|org|de)", fullmatch=True), AROUND)
def test_no_address_survives_wherever_it_stands(before, address, after):
    """The sign of an address is gone with what stood around it."""
    assert address not in scrubbed(before + address + after).text


@given(AROUND, st.from_regex(r"[0-9]{6,15}", fullmatch=True), AROUND)
def test_no_long_number_survives_wherever_it_stands(before, number, after):
    """Six digits in a row are never left."""
    assert number not in scrubbed(before + number + after).text


@given(st.text(max_size=60))
def test_a_second_scan_finds_nothing(text):
    """What was made clean is clean, whatever it was."""
    once = scrubbed(text)
    again = scrubbed(once.text)

    assert (again.text, again.removed) == (once.text, {})


@given(st.text("aB3@.:/ -7x9[]", max_size=40))
def test_everything_removed_is_counted(text):
    """One mark for each, beside those that somebody wrote themselves."""
    found = scrubbed(text)

    assert found.text.count(MARK) == sum(found.removed.values())
    assert all(found.removed.values())


@given(WORDS)
def test_ordinary_remarks_are_left_alone(words):
    """However the words fall."""
    text = " ".join(words)

    assert scrubbed(text).text == text


@pytest.mark.parametrize(
    "hidden",
    ["Ａ２ＳＵＡＭ１Ｊ３ＧＮＮ３Ｂ", "A2SU\u200bAM1J3G\u00adNN3B", "jane＠example．org", "１２３４５６７"],
)
def test_letters_that_look_alike_hide_nothing(hidden):
    """Full width and invisible characters are read as what they show."""
    found = scrubbed(f"see {hidden}")

    assert found.text == f"see {MARK}"


def test_a_mark_of_ones_own_is_kept_and_not_counted():
    """Somebody who writes the mark hides nothing behind it."""
    found = scrubbed(f"{MARK} jane@example.org {MARK}")

    assert found.text == f"{MARK} {MARK} {MARK}"
    assert found.removed == {Removed.EMAIL: 1}


def test_each_distinct_text_is_scanned_once():
    """And the order in which texts came says nothing."""
    assert scrub_all(["b", "a", WORKER, "a"], IDS) == scrub_all([WORKER, "a", "b"], IDS)
    assert list(scrub_all(["b", "a"], ())) == ["a", "b"]

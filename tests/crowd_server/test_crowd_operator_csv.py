"""Payment files: harmless to spreadsheets, in the panels' forms, with every cent once."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.core.formats import csv_cell, csv_text
from mitl.crowd_server.operator import payments as payout_files
from mitl.crowd_server.operator.payments import CONNECT, GENERIC, PROLIFIC, pay_file, to_pay
from mitl.crowd_server.store.reports import Payment

FORMULA = "=+-@＝＋－＠"
hostile = st.text(st.sampled_from("=+-@\t\r\n ,\";'|a1＝\u2028") | st.characters(exclude_categories=["Cs"]))
cents = st.integers(0, 10**7)
payees = st.builds(
    Payment,
    external_id=st.just("") | hostile,
    worker=st.from_regex(r"A[A-Z0-9]{13}", fullmatch=True),
    approved=st.integers(0, 999),
    reward_cents=cents,
    bonus_cents=cents,
)


@given(st.lists(st.lists(hostile, min_size=1, max_size=4), max_size=5))
def test_no_cell_is_a_formula_and_no_row_breaks(rows):
    """Whatever a label or an id holds: one line a row, the same cells, none that a spreadsheet would run."""
    found = list(csv.reader(io.StringIO(csv_text(rows))))

    assert [len(row) for row in found] == [len(row) for row in rows]
    assert csv_text(rows).count("\n") == len(rows)
    for written in (own for row in found for own in row):
        assert not written.lstrip().startswith(tuple(FORMULA))
        assert not re.search("[\x00-\x1f\x7f]", written)


@given(st.text("=+-@\t\r", min_size=1, max_size=1), hostile)
def test_dangerous_beginnings_get_an_apostrophe(first, rest):
    """The six that spreadsheets act on."""
    assert csv_cell(first + rest).startswith("'")


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 .,:_-]{0,30}", fullmatch=True))
def test_ordinary_text_stays_as_it_is(text):
    """Ids, amounts and titles are not touched."""
    assert csv_cell(text) == text


@settings(max_examples=40)
@given(st.lists(payees, max_size=12), st.sampled_from(["all", "bonuses"]))
def test_every_cent_is_paid_once(people, choice):
    """The lines of all parts add up to what the choice says, of people whom the panel can find."""
    wanted = {"all": "total_cents", "bonuses": "bonus_cents"}[choice]
    for kind, column in ((PROLIFIC, 1), (CONNECT, 1), (GENERIC, 5)):
        lines = to_pay(people, kind, choice)
        rows = [
            row
            for part in payout_files.parts(lines, kind)
            for row in list(csv.reader(io.StringIO(pay_file(part, kind))))[bool(kind.header) :]
        ]
        payable = [own for own in people if own.external_id or not kind.needs_id]

        assert sum(Decimal(row[column]) for row in rows) * 100 == sum(getattr(own, wanted) for own in payable)
        assert all(re.fullmatch(r"[0-9]+\.[0-9]{2}", row[column]) for row in rows)


def test_prolific_takes_two_hundred_lines_without_a_header():
    """451 people are three files of plain ``id,amount`` lines."""
    people = [Payment(f"{n:024x}", "A" * 14, 1, 150, 0) for n in range(451)]

    files = [
        pay_file(part, PROLIFIC) for part in payout_files.parts(to_pay(people, PROLIFIC, "all"), PROLIFIC)
    ]

    assert [text.count("\n") for text in files] == [200, 200, 51]
    assert files[0].startswith("000000000000000000000000,1.50\n000000000000000000000001,1.50\n")


def test_other_files_say_what_their_columns_are():
    """Connect gets its message, the generic file both ids and the parts of the sum."""
    people = [Payment("p1", "A1", 2, 200, 25), Payment("", "A2", 1, 100, 0)]

    assert pay_file(to_pay(people, CONNECT, "bonuses"), CONNECT).splitlines() == [
        "id,amount,message",
        "p1,0.25,Thank you for your work.",
    ]
    assert pay_file(to_pay(people, GENERIC, "all"), GENERIC).splitlines() == [
        "id,worker,approved_hits,rewards,bonuses,amount,currency",
        "p1,A1,2,2.00,0.25,2.25,USD",
        ",A2,1,1.00,0.00,1.00,USD",
    ]
    assert [kind.name for kind in payout_files.formats_of("sona")] == ["generic"]

"""Text that is not GAQL is refused with the place and the word, and never ends in any other error."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gads_assets.catalog.gaql import GaqlQuery, describe_place, parse_gaql, print_gaql
from gads_assets.catalog.gaql_tokens import MAX_QUERY_CHARACTERS
from gads_assets.errors import GaqlError

# The offending place is marked with «, which is taken out before parsing; then what the message must name.
MALFORMED = [
    ("«", "the end of the query"),
    ("«  \n ", "the end of the query"),
    ("«SELCT a.b FROM c", "SELCT"),
    ("«'SELECT' a.b FROM c", "expected SELECT"),
    ("SELECT «FROM c", "a field"),
    ("SELECT a.b, «FROM c", "FROM"),
    ("SELECT «, a.b FROM c", "','"),
    ("SELECT a.b «a.c FROM c", "',' or FROM"),
    ("SELECT a.b«", "',' or FROM, found the end of the query; only GoogleAdsFieldService answers without FROM"),
    ("SELECT a.b FROM«", "a resource"),
    ("SELECT a.b FROM «WHERE a.b = 1", "WHERE"),
    ("SELECT a.b FROM c«, d", "','"),
    ("SELECT a.b FROM «c.d", "c.d"),
    ("SELECT a.b FROM «'c'", "a resource"),
    ("SELECT «* FROM c", "no *"),
    ("SELECT «a..b FROM c", "a..b"),
    ("SELECT «a.b. FROM c", "a.b."),
    ("SELECT «Campaign.id FROM c", "Campaign.id"),
    ("SELECT «1a FROM c", "1a"),
    ("SELECT «'a.b", "not closed"),
    ("SELECT «'a.b' FROM c", "a field"),
    ("SELECT a.b FROM c «; DROP TABLE x", "without ';'"),
    ("SELECT a.b FROM c«;", "without ';'"),
    ("SELECT a.b FROM c «-- comment", "found '--': GAQL has no comments"),
    ("SELECT a.b «/* comment */ FROM c", "found '/*': GAQL has no comments"),
    ("SELECT a.b FROM c «# comment", "found '#': GAQL has no comments"),
    ("SELECT a.b FROM c «// comment", "found '//': GAQL has no comments"),
    ("SELECT a.b FROM c «- 5", "'-'"),
    ("SELECT a.b FROM c «/ 5", "'/'"),
    ("SELECT «metrics.* FROM c", "GAQL has no *: name each field"),
    ("SELECT a.b «WHERE a.b = 1", "only GoogleAdsFieldService answers without FROM"),
    ("SELECT name, category «LIMIT 5", "only GoogleAdsFieldService answers without FROM"),
    ("SELECT a.b FROM c WHERE a.b BETWEEN 2024«-01-01 AND 2024-01-31", "write the date in quotes: '2024-01-01'"),
    ("SELECT a.b FROM c WHERE a.b IN (2024«-01-01)", "write the date in quotes: '2024-01-01'"),
    ("SELECT a.b FROM c «WHRE a.b = 1", "WHERE, ORDER BY, LIMIT, PARAMETERS"),
    ("SELECT a.b FROM c WHERE«", "a field"),
    ("SELECT a.b FROM c WHERE a.b«", "an operator"),
    ("SELECT a.b FROM c WHERE a.b =«", "a value"),
    ("SELECT a.b FROM c WHERE a.b = «=", "a value"),
    ("SELECT a.b FROM c WHERE a.b = «NULL", "NULL"),
    ("SELECT a.b FROM c WHERE a.b = «(1)", "a value"),
    ("SELECT a.b FROM c WHERE a.b = «a.c", "a.c"),
    ("SELECT a.b FROM c WHERE a.b <«> 1", "'>'"),
    ("SELECT a.b FROM c WHERE a.b = 1 «OR a.b = 2", "no OR"),
    ("SELECT a.b FROM c WHERE a.b = 1 AND«", "a field"),
    ("SELECT a.b FROM c WHERE a.b IN «1", "'(' after IN"),
    ("SELECT a.b FROM c WHERE a.b IN («)", "a value"),
    ("SELECT a.b FROM c WHERE a.b IN (1, «)", "a number"),
    ("SELECT a.b FROM c WHERE a.b IN (1 «2)", "',' or ')'"),
    ("SELECT a.b FROM c WHERE a.b IN ('x', «Y)", "a quoted text"),
    ("SELECT a.b FROM c WHERE a.b IN ('x'«", "',' or ')'"),
    ("SELECT a.b FROM c WHERE a.b NOT «1", "IN, LIKE or REGEXP_MATCH after NOT"),
    ("SELECT a.b FROM c WHERE a.b CONTAINS «SOME ('x')", "ALL, ANY or NONE after CONTAINS"),
    ("SELECT a.b FROM c WHERE a.b IS «1", "NOT or NULL after IS"),
    ("SELECT a.b FROM c WHERE a.b IS NOT «'NULL'", "NULL after IS NOT"),
    ("SELECT a.b FROM c WHERE a.b LIKE «5", "a quoted text"),
    ("SELECT a.b FROM c WHERE a.b REGEXP_MATCH «ENABLED", "a quoted text"),
    ("SELECT a.b FROM c WHERE a.b DURING «LAST_31_DAYS", "LAST_30_DAYS"),
    ("SELECT a.b FROM c WHERE a.b DURING «'TODAY'", "after DURING"),
    ("SELECT a.b FROM c WHERE a.b BETWEEN '1' «OR '2'", "AND"),
    ("SELECT a.b FROM c WHERE a.b BETWEEN '1' AND «2", "a quoted text"),
    ("SELECT a.b FROM c WHERE a.b = 2024«-01-01", "found '-01'; write the date in quotes: '2024-01-01'"),
    ("SELECT a.b FROM c WHERE a.b = 2024«-01", "found '-01'"),
    ("SELECT a.b FROM c WHERE a.b = «'it", "expected another '"),
    ("SELECT a.b FROM c WHERE a.b = «\"it'", 'expected another "'),
    ("SELECT a.b FROM c WHERE a.b = 'it'«s'", "'s"),
    ("SELECT a.b FROM c WHERE a.b = 'x«\n'", "on the same line"),
    ("SELECT a.b FROM c WHERE a.b = 'x«\x00'", "\\x00"),
    ("SELECT a.b FROM c WHERE a.b = 'x«\ud800'", "\\ud800"),
    ("SELECT a.b FROM c WHERE a.b = «'x\\'", "not closed"),
    ("SELECT a.b«\u00a0FROM c", "U+00A0"),
    ("SELECT a.b FROM c WHERE a.b = «\u2018x\u2019", "U+2018"),
    ("SELECT a.b FROM c WHERE a.b = «" + "9" * 41, "at most 40"),
    ("SELECT a.b FROM c WHERE a.b = «1.2.3", "1.2.3"),
    ("SELECT a.b FROM c ORDER «a.b", "expected BY"),
    ("SELECT a.b FROM c ORDER BY«", "a field"),
    ("SELECT a.b FROM c ORDER BY a.b «UP", "',', LIMIT, PARAMETERS"),
    ("SELECT a.b FROM c ORDER BY a.b DESC «ASC", "ASC"),
    ("SELECT a.b FROM c ORDER BY a.b «WHERE a.b = 1", "WHERE"),
    ("SELECT a.b FROM c LIMIT«", "a whole number"),
    ("SELECT a.b FROM c LIMIT «0", "'0'"),
    ("SELECT a.b FROM c LIMIT «-1", "'-1'"),
    ("SELECT a.b FROM c LIMIT «1.5", "'1.5'"),
    ("SELECT a.b FROM c LIMIT «9223372036854775808", "9223372036854775807"),
    ("SELECT a.b FROM c LIMIT 1 «LIMIT 2", "PARAMETERS or the end"),
    ("SELECT a.b FROM c LIMIT 1 «ORDER BY a.b", "ORDER"),
    ("SELECT a.b FROM c PARAMETERS«", "a parameter"),
    ("SELECT a.b FROM c PARAMETERS include_drafts«", "'=' after include_drafts"),
    ("SELECT a.b FROM c PARAMETERS include_drafts=«", "a value"),
    ("SELECT a.b FROM c PARAMETERS p=true, «p=false", "each parameter once"),
    ("SELECT a.b FROM c PARAMETERS p=true «LIMIT 5", "',' or the end"),
]


@pytest.mark.parametrize(("marked", "named"), MALFORMED)
def test_malformed_gaql_is_refused_at_the_offending_word(marked: str, named: str) -> None:
    offset = marked.index("«")
    text = marked.replace("«", "")
    with pytest.raises(GaqlError) as refused:
        parse_gaql(text)
    message = str(refused.value)
    assert refused.value.offset == offset, message
    assert named in message
    assert "expected" in message
    assert message.isprintable(), "one line, whatever the query holds"
    assert len(message) < 300


def test_the_first_mistake_in_reading_order_is_the_one_reported() -> None:
    with pytest.raises(GaqlError) as refused:
        parse_gaql("SELECT a.b FORM c WHERE § = 'unclosed")
    assert refused.value.offset == 11


def test_a_query_beyond_the_size_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(GaqlError, match="at most 65536") as refused:
        parse_gaql("SELECT " + "a" * MAX_QUERY_CHARACTERS)
    assert refused.value.offset == MAX_QUERY_CHARACTERS


def test_the_largest_list_within_the_size_limit_is_read() -> None:
    items = ", ".join(["1"] * 20_000)
    query = parse_gaql(f"SELECT a.b FROM c WHERE a.b IN ({items})")
    assert len(query.conditions[0].values) == 20_000


_KEYWORDS = "SELECT FROM WHERE AND ORDER BY LIMIT PARAMETERS IN NOT LIKE CONTAINS ANY IS NULL DURING BETWEEN ASC"
_OTHERS = "campaign.id campaign = != > ( ) , 5 -1 'x' \"y ' \\ ENABLED TODAY . ; é \n"
_pieces = st.lists(st.sampled_from([*_KEYWORDS.split(), *_OTHERS.split(" ")]), max_size=25)


def outcome(text: str) -> GaqlQuery | GaqlError:
    try:
        return parse_gaql(text)
    except GaqlError as error:
        return error


@given(st.one_of(st.text(), _pieces.map(" ".join), _pieces.map("".join)))
@example("SELECT a.b FROM c WHERE a.b = '" + "\\" * 99)
@example("SELECT " + "(" * 5_000)
@example("1" * 5_000)
def test_no_text_at_all_ends_in_anything_but_a_query_or_a_gaql_error(text: str) -> None:
    match outcome(text):
        case GaqlError() as error:
            assert 0 <= error.offset <= len(text)
            assert str(error).isprintable()
            assert describe_place(text, error.offset).count("\n") == 1
        case query:
            assert parse_gaql(print_gaql(query)) == query


def test_the_place_is_shown_as_its_line_with_a_caret() -> None:
    text = "SELECT a.b\nFROM campaign\r\n\tWHRE a.b = 1"
    assert describe_place(text, text.index("campaign")) == "FROM campaign\n     ^"
    assert describe_place(text, text.index("WHRE")) == " WHRE a.b = 1\n ^"
    assert describe_place("", 0) == "\n^"


@pytest.mark.parametrize(
    ("before", "columns"),
    [("東京", 4), ("🛒", 2), ("e\u0301", 1), ("ﾄ", 1), ("\uff37", 2), ("\u200b", 1), ("\t", 1), ("עברית", 5)],
)
def test_the_caret_stands_under_its_word_also_after_wide_characters(before: str, columns: int) -> None:
    text = f"'{before}' !"
    line, caret = describe_place(text, text.index("!")).split("\n")
    assert line.endswith("!")
    assert caret == " " * (columns + 3) + "^"


def test_the_place_stays_readable_in_a_very_long_line() -> None:
    text = "SELECT " + "a.b, " * 500 + "! " + "a.b, " * 500
    line, caret = describe_place(text, text.index("!")).split("\n")
    assert len(line) == 110
    assert line[caret.index("^")] == "!"

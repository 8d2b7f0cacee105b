from gads_assets_tests.drills.damage import Damage, Report


def test_the_reports_of_two_drills_add_up() -> None:
    demo = Report(damage=Damage(lost=["a"], mixed_reads=["b"]), kills=20, reads={"demo": 7})
    publishing = Report(damage=Damage(mixed_reads=["c"]), kills=25, reads={"spark": 9}, facts={"replacements": 500})
    both = sum([demo, publishing], start=Report())
    counts = both.damage.counts()
    assert {name: count for name, count in counts.items() if count} == {"lost": 1, "mixed_reads": 2}
    assert both.damage.sentences() == ["lost: a", "mixed_reads: b", "mixed_reads: c"]
    assert (both.kills, both.reads, both.facts) == (45, {"demo": 7, "spark": 9}, {"replacements": 500})

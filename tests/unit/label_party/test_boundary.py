from cutlayer.label_party.boundary import Sparingly


def test_P14_a_million_refusals_are_few_lines() -> None:
    lines: list[str] = []
    now = 0.0
    log = Sparingly(lines.append, lambda: now)
    for number in range(1_000_000):
        log.write(f"refused {number}")
    assert lines == [f"refused {number}" for number in range(20)]
    now = 61.0
    log.write("refused again")
    assert lines[20:] == ["999980 more like the last ones were left out", "refused again"]
    now = 300.0
    log.write("later")
    assert lines[22:] == ["later"]


def test_a_reason_is_told_once_and_again_after_ten_minutes() -> None:
    lines: list[str] = []
    now = 0.0
    log = Sparingly(lines.append, lambda: now)
    for second in range(600):
        now = float(second)
        log.write("the same")
    assert lines[0] == "the same"
    assert lines.count("the same") == 1
    assert lines[1] == "60 more like the last ones were left out"
    now = 700.0
    log.write("the same")
    assert lines.count("the same") == 2

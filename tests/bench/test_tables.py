"""Rows as CSV and laid out for a reader."""

import pytest

from urnn.bench import tables

ROW = dict.fromkeys(tables.COLUMNS, "") | {"T": 8, "B": 4, "N": 2, "M": 1, "shape": "tiny", "precision": "float32"}


def row(model, ms="", **others):
    return ROW | {"model": model, "ms_20": ms, "ms_50": ms, "ms_80": ms} | others


def test_a_file_gives_back_its_rows(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    with tables.csv_file(path) as add:
        assert tables.read_csv(path) == []
        add([row("nn.LSTM", 1.5, note='a, "b"')])
        (found,) = tables.read_csv(path)
        assert (found["model"], found["ms_50"], found["note"], found["T"]) == ("nn.LSTM", "1.5", 'a, "b"', "8")
        add([row("nn.GRU")])
    assert [found["model"] for found in tables.read_csv(path)] == ["nn.LSTM", "nn.GRU"]
    assert b"\r" not in path.read_bytes()


def test_a_file_of_other_columns_is_of_another_measurement(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("model,ms_50\nnn.LSTM,1\n")
    assert tables.read_csv(path) == []
    path.write_text("")
    assert tables.read_csv(path) == []


@pytest.mark.parametrize(
    ("value", "text"), [("", ""), ("0.1234", "0.12"), (9.999, "10.00"), (99.4, "99.40"), ("123.4", "123")]
)
def test_figures_have_three_digits_at_least(value, text):
    assert tables.figure({"ms_50": value}, "ms_50") == text


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_an_exponent_is_that_of_the_power_law(power):
    series = [row("nn.LSTM", 3.0 * T**power, series="T") | {"T": T} for T in (64, 128, 512)]
    noise = [row("nn.LSTM", 9.0), row("nn.GRU", 1.0, series="T"), row("nn.RNN", series="T")]
    assert tables.exponents(series + noise) == {("T", "nn.LSTM"): pytest.approx(power)}


def test_scaling_names_what_stays_as_it_is():
    series = [row("nn.LSTM", 0.5 * N, series="N") | {"N": N} for N in (16, 64)]
    assert tables.scaling(series)[1:] == [["N = 16 to 64", "T = 8, B = 4, M = 1", "nn.LSTM", "1.00", "8.00", "32.00"]]


def test_a_comparison_has_a_line_for_each_model_and_a_dash_where_there_is_no_time():
    rows = [row("nn.LSTM", 2.0), row("nn.GRU", 1.0, shape="other"), row("nn.RNN", note="no"), row("x", shape="none")]
    assert tables.comparison(rows, lambda r: tables.figure(r, "ms_50")) == [
        ["", "tiny", "other"],
        ["*T, B, N, M*", "8, 4, 2, 1", "8, 4, 2, 1"],
        ["nn.LSTM", "2.00", "-"],
        ["nn.GRU", "-", "1.00"],
    ]
    assert tables.absences(rows) == [("nn.RNN", "no", ["tiny"]), ("x", "", ["none"])]


def test_columns_without_figures_are_not_shown():
    assert tables.one_shape([row("nn.LSTM", 2.0)])[0] == ["model", "ms", "20 to 80 %", "ratio"]
    both = [row("nn.LSTM", 2.0, peak_mib=3.0), row("nn.LSTM", 1.0, precision="tf32")]
    assert tables.one_shape(both)[0] == ["model", "precision", "ms", "20 to 80 %", "ratio", "MiB"]


def test_markdown():
    assert tables.markdown([["a", "b"], ["c", "1"]]) == "| a | b |\n| --- | ---: |\n| c | 1 |\n"

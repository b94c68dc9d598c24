"""Manifests, TIMIT in both layouts, and folders that are neither."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from urnn.experiments.speech import corpora, timit

GOOD = [["a", "s1", "train", "a.wav"], ["b", "s2", "valid", "b.wav"], ["0003", "007", "eval", "x/c.flac"]]


def manifest(rows, columns=corpora.COLUMNS) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    return text.getvalue()


def test_a_manifest_is_read_with_its_leading_zeros(tmp_path):
    path = tmp_path / "manifest.csv"
    path.write_text(manifest([[*row, "more"] for row in GOOD], [*corpora.COLUMNS, "text"]))
    found = corpora.find(tmp_path).utterances
    assert [(u.utt_id, u.speaker, u.split) for u in found] == [tuple(row[:3]) for row in GOOD]
    assert found[2].path == tmp_path / "x" / "c.flac"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got none called utt_id, speaker, split, path"),
        (manifest([], ["utt_id", "speaker", "path"]), "got none called split"),
        (manifest([["a", "", "train", "a.wav"]]), "in line 2"),
        (manifest([["a", "s"]]), "in line 2"),
        (
            manifest([*GOOD, ["d", "s", "test", "d.wav"]]),
            "expected a split of train, valid, eval, got 'test' in line 5",
        ),
        (manifest([*GOOD, GOOD[0]]), "expected every utt_id once, got 'a' twice"),
        (manifest([*GOOD, ["d", "s1", "eval", "d.wav"]]), "every speaker in one split, got 's1' in train and eval"),
        (manifest(GOOD[:2]), "got none of eval"),
        (manifest(GOOD) + '"a', "expected CSV"),
    ],
)
def test_a_wrong_manifest_is_named(tmp_path, text, message):
    path = tmp_path / "manifest.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="manifest.csv: expected") as found:
        corpora.read_manifest(path)
    assert message in str(found.value)


def test_a_manifest_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "manifest.csv"
    path.write_bytes(b"\xff\xfe\x00utt_id")
    with pytest.raises(ValueError, match="manifest.csv: expected a manifest in UTF-8"):
        corpora.read_manifest(path)


def read(path) -> tuple[corpora.Utterance, ...] | str:
    try:
        return corpora.read_manifest(path)
    except ValueError as error:
        return str(error)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, NAMES, st.sampled_from(corpora.SPLITS), NAMES), max_size=8))
def test_any_manifest_is_read_whole_or_refused(tmp_path, rows):
    path = tmp_path / "manifest.csv"
    path.write_text(manifest(rows), encoding="utf-8")
    found = read(path)
    if isinstance(found, str):
        assert "expected" in found
    else:
        assert [(u.utt_id, u.speaker, u.split, u.path) for u in found] == [(*r[:3], tmp_path / r[3]) for r in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_refused(tmp_path, data):
    path = tmp_path / "manifest.csv"
    path.write_bytes(b"utt_id,speaker,split,path\n" + data)
    with pytest.raises(ValueError, match="expected"):  # three splits do not come about by chance
        corpora.read_manifest(path)


def test_a_folder_without_a_manifest_is_split_by_its_folders(tmp_path):
    for speaker in range(10):
        for number in range(2):
            path = tmp_path / f"p{speaker}" / f"{number}.WAV"
            path.parent.mkdir(exist_ok=True)
            path.touch()
    found = corpora.find(tmp_path)
    of = {split: {u.speaker for u in found.utterances if u.split == split} for split in corpora.SPLITS}
    assert {split: len(speakers) for split, speakers in of.items()} == {"train": 6, "valid": 2, "eval": 2}
    assert not of["train"] & of["valid"] | of["train"] & of["eval"] | of["valid"] & of["eval"]
    assert "splits are by speakers" in found.notes[0]


def test_a_flat_folder_is_split_by_files(tmp_path):
    for number in range(10):
        (tmp_path / f"{number}.flac").touch()
    found = corpora.find(tmp_path)
    assert sorted(u.split for u in found.utterances) == ["eval"] * 2 + ["train"] * 6 + ["valid"] * 2
    assert "not held apart" in found.notes[0]


def test_a_folder_without_audio_is_named(tmp_path):
    with pytest.raises(ValueError, match="data: expected audio files"):
        corpora.find(tmp_path)
    with pytest.raises(ValueError, match="data: expected a folder of audio or a file of features, got"):
        corpora.find(tmp_path / "nowhere")


SENTENCES = ("SA1", "SA2", *(f"SI{n}" for n in (1, 20, 300)), *(f"SX{n}" for n in (1, 20, 300, 4, 5)))


def fill(folder, part, speakers, upper=True, sentences=SENTENCES):
    for speaker in speakers:
        for sentence in sentences:
            name = f"{part}/DR1/{speaker}/{sentence}.WAV"
            path = folder / (name.upper() if upper else name.lower())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


@pytest.mark.parametrize("upper", [True, False])
def test_the_standard_splits_of_the_whole_of_timit(tmp_path, upper):
    train = [f"F{a}{b}{c}0" for a in "ABCDEFGH" for b in "XYZQ" for c in "ABCDEFGHIJKLMNO"][:462]
    others = ["FXXX0", "MXXX1"]  # of TEST, and in neither list
    fill(tmp_path, "TRAIN", train, upper)
    fill(tmp_path, "TEST", [*timit.DEVELOPMENT, *timit.CORE_TEST, *others], upper)
    (tmp_path / ("TRAIN" if upper else "train") / "README.WAV").touch()
    found = corpora.find(tmp_path)
    counts = [sum(u.split == split for u in found.utterances) for split in corpora.SPLITS]
    assert counts == [3696, 400, 192]
    assert not found.notes
    assert not any("-sa" in u.utt_id for u in found.utterances)


def test_the_lists_are_whole_and_apart():
    assert (len(timit.DEVELOPMENT), len(timit.CORE_TEST)) == (50, 24)
    assert not timit.DEVELOPMENT & timit.CORE_TEST
    assert sum(name.startswith("m") for name in timit.CORE_TEST) == 16  # two men and a woman of each of 8 regions


def test_what_is_missing_is_said(tmp_path):
    fill(tmp_path, "TRAIN", ["FAAA0"])
    fill(tmp_path, "TRAIN", ["FAAB0"], sentences=SENTENCES[:6])
    fill(tmp_path, "TEST", timit.DEVELOPMENT)
    fill(tmp_path, "TEST", timit.CORE_TEST - {"mdab0", "felc0"})
    assert corpora.find(tmp_path).notes == (
        "TIMIT train: expected 462 speakers and 3696 utterances, found 2 and 12; of faab0 4 of 8",
        "TIMIT eval: expected 24 speakers and 192 utterances, found 22 and 176; no utterance of felc0, mdab0",
    )


def test_a_recording_twice_is_named(tmp_path):
    fill(tmp_path / "one", "TRAIN", ["FAAA0"])
    fill(tmp_path / "two", "TRAIN", ["FAAA0"])
    with pytest.raises(ValueError, match="expected every recording once .* got faaa0-si1"):
        timit.find(tmp_path)
    with pytest.raises(ValueError, match="timit: expected TRAIN/DR1"):
        timit.find(tmp_path / "one" / "TRAIN" / "DR1" / "FAAA0")


def test_the_sample_of_timit(urnn_timit_sample):
    found = timit.files(urnn_timit_sample)
    assert len(found) == 160
    assert len({speaker for speaker, _, _ in found}) == 16
    corpus = corpora.find(urnn_timit_sample)
    assert len(corpus.utterances) == 16 * 8
    assert {u.split for u in corpus.utterances} == {"train"}
    assert corpus.notes[0] == "TIMIT train: expected 462 speakers and 3696 utterances, found 16 and 128"

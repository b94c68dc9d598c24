"""MNIST's four files: from a folder, with errors that name the file, or downloaded."""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from urnn.experiments.data import mnist

NAMES = list(mnist.FILES)
IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = NAMES


@pytest.fixture
def folder(toy_mnist, tmp_path):
    """A copy to spoil, all of it plain."""
    for name, path in mnist.find(toy_mnist).items():
        content = path.read_bytes()
        if path.suffix == ".gz":
            import gzip

            content = gzip.decompress(content)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def known(folder, monkeypatch):
    """The sums of that copy as those of MNIST."""
    sums = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in NAMES}
    monkeypatch.setattr(mnist, "FILES", {name: (mnist.FILES[name][0], md5) for name, md5 in sums.items()})
    return folder


def test_a_folder_is_read_plain_and_gzipped(toy_mnist, folder):
    for where in (toy_mnist, folder):
        train, test = mnist.load(where, checksums=False)
        assert train.images.shape == (60, 4, 3)
        assert test.images.shape == (20, 4, 3)
        assert train.labels.tolist() == [i % 10 for i in range(60)]
    assert torch.equal(mnist.load(toy_mnist, False)[0].images, train.images)


def test_what_has_the_right_sums_is_read(known):
    assert len(mnist.load(known)[0].images) == 60


def swap(folder: Path, one: str, other: str) -> None:
    first, second = (folder / one).read_bytes(), (folder / other).read_bytes()
    (folder / one).write_bytes(second)
    (folder / other).write_bytes(first)


def edit(folder: Path, name: str, place: int, value: int) -> None:
    content = bytearray((folder / name).read_bytes())
    content[place] = value
    (folder / name).write_bytes(content)


SPOILED = {
    "no folder": (shutil.rmtree, "data: expected a folder with MNIST's four files, got "),
    "missing": (lambda f: (f / LABELS).unlink(), f"data: expected {LABELS} or {LABELS}.gz in .* which has neither"),
    "a folder of the file's name": (
        lambda f: ((f / LABELS).unlink(), (f / LABELS).mkdir()),
        f"data: expected {LABELS} or {LABELS}.gz in .* which has neither",
    ),
    "images for labels": (lambda f: swap(f, IMAGES, LABELS), f"{IMAGES}: expected an idx file of images .* swapped"),
    "test for training": (
        lambda f: swap(f, IMAGES, TEST_IMAGES),
        f"{IMAGES}: expected the MD5 .* of MNIST's {IMAGES}, got .* That is {TEST_IMAGES}: are files swapped?",
    ),
    "test labels for training labels": (lambda f: swap(f, LABELS, TEST_LABELS), f"{LABELS}: .* That is {TEST_LABELS}"),
    "another pixel": (lambda f: edit(f, TEST_IMAGES, -1, 255), f"{TEST_IMAGES}: expected the MD5 .* checksums=false"),
    "another label": (lambda f: edit(f, TEST_LABELS, -1, 3), f"{TEST_LABELS}: expected the MD5"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_folder_is_refused_and_the_file_named(known, name):
    spoil, message = SPOILED[name]
    spoil(known)
    with pytest.raises(ValueError, match=message):
        mnist.load(known)


NOT_OF_THE_FORM = {
    "counts differ": (
        lambda f: swap(f, IMAGES, TEST_IMAGES),
        f"{LABELS}: expected 20 labels, one for each .* got 60",
    ),
    "no such class": (lambda f: edit(f, LABELS, -1, 10), f"{LABELS}: expected labels from 0 to 9, got 10"),
    "no images": (
        lambda f: (f / IMAGES).write_bytes(b"\0\0\x08\3" + bytes(12)),
        rf"{IMAGES}: expected images, got \(0, 0, 0\)",
    ),
    "images of two sizes": (
        lambda f: [edit(f, TEST_IMAGES, place, size) for place, size in ((11, 3), (15, 4))],
        rf"{TEST_IMAGES}: expected images as those for training, \(4, 3\), got \(3, 4\)",
    ),
}


@pytest.mark.parametrize("name", NOT_OF_THE_FORM)
def test_without_sums_the_form_is_checked(folder, name):
    spoil, message = NOT_OF_THE_FORM[name]
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        mnist.load(folder, checksums=False)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    return pooch


def test_a_download_asks_for_the_official_sums_and_tries_all_mirrors(cache, monkeypatch, tmp_path):
    asked = []

    def retrieve(url, known_hash, fname, path):
        asked.append((url, known_hash, fname, Path(path)))
        if url.startswith(mnist.MIRRORS[0]):
            raise ConnectionError("no route")

    monkeypatch.setattr(cache, "retrieve", retrieve)
    assert mnist.download() == tmp_path / "urnn" / "mnist"
    assert len(asked) == 2 * len(NAMES)
    for url, known_hash, fname, path in asked:
        assert url.endswith(f"/mnist/{fname}")
        assert known_hash == f"md5:{mnist.FILES[fname.removesuffix('.gz')][0]}"
        assert path == tmp_path / "urnn" / "mnist"


def test_without_a_connection_the_cure_is_said(cache, monkeypatch):
    """Not a patched function: pooch itself, at an address where nothing listens."""
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:9/mnist/",))
    with pytest.raises(ValueError, match=f"data: expected to download {IMAGES}.gz to .*--data DIR"):
        mnist.download()


def test_a_download_of_another_content_is_refused(cache, monkeypatch, tmp_path):
    (tmp_path / "served").mkdir()
    for name in NAMES:
        (tmp_path / "served" / f"{name}.gz").write_bytes(b"something else")

    def fetched(url, output_file, pooch):
        shutil.copy(tmp_path / "served" / url.rpartition("/")[2], output_file)

    retrieve = cache.retrieve
    monkeypatch.setattr(cache, "retrieve", lambda *words: retrieve(*words, downloader=fetched))
    with pytest.raises(ValueError, match=f"data: expected to download {IMAGES}.gz .* hash"):
        mnist.download()


def test_without_pooch_the_cure_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"data: expected --data DIR, or pooch, .* `pip install pooch`"):
        mnist.download()


def test_sums_look_like_sums():
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for pair in mnist.FILES.values() for md5 in pair)
    assert len({md5 for pair in mnist.FILES.values() for md5 in pair}) == 8


@pytest.mark.skipif("URNN_MNIST" not in os.environ, reason="URNN_MNIST names no folder with MNIST")
def test_mnist_itself_is_read():
    train, test = mnist.load(Path(os.environ["URNN_MNIST"]))
    assert train.images.shape == (60_000, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(train.labels).tolist() == counts
    assert torch.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert float(train.images.float().mean() / 255) == pytest.approx(0.1307, abs=1e-4)

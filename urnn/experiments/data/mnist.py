"""MNIST: four idx files, from a folder or downloaded."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from urnn._checks import format_shape
from urnn.experiments.data.idx import read_idx

FILES = {
    "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
}
"""Official MD5 of each file, gzipped and not."""
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
CLASSES = 10


@dataclass(frozen=True)
class Labelled:
    """Images (n, rows, columns) and their labels (n,), uint8."""

    images: Tensor
    labels: Tensor


def load(folder: Path, checksums: bool = True) -> tuple[Labelled, Labelled]:
    """The training and the test set in a folder, gzipped or not.

    Args:
        folder: holds the four files of ``FILES``, with or without ``.gz``.
        checksums: whether they must be MNIST's own to the byte; False takes any of the same form.

    Raises:
        ValueError: names the file, what was expected and what came.
    """
    found = find(folder)
    train, test = (_labelled(found, part, checksums) for part in ("train", "t10k"))
    if train.images.shape[1:] != test.images.shape[1:]:
        shapes = [format_shape(part.images.shape[1:]) for part in (train, test)]
        raise ValueError(
            f"{found['t10k-images-idx3-ubyte']}: expected images as those for training, {shapes[0]}, got {shapes[1]}"
        )
    return train, test


def find(folder: Path) -> dict[str, Path]:
    """Where the four files are."""
    if not folder.is_dir():
        raise ValueError(f"data: expected a folder with MNIST's four files, got {str(folder)!r}, which is none")
    found = {}
    for name in FILES:
        paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if not paths:
            raise ValueError(f"data: expected {name} or {name}.gz in {folder}, which has neither")
        found[name] = paths[0]
    return found


def download() -> Path:
    """The folder with the four files, which are fetched if they are not there already.

    Raises:
        ValueError: there is no pooch, or no connection; it says what to do.
    """
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise ValueError(
            "data: expected --data DIR, or pooch, which downloads MNIST, and it is not installed. "
            f"`pip install pooch`, or give the folder of {', '.join(FILES)}."
        ) from error
    folder = Path(pooch.os_cache("urnn")) / "mnist"
    for name, (md5, _) in FILES.items():
        faults = []
        for mirror in MIRRORS:
            try:
                pooch.retrieve(f"{mirror}{name}.gz", f"md5:{md5}", f"{name}.gz", folder)
                break
            except OSError as error:
                faults.append(f"no connection to {mirror} ({type(error).__name__})")
            except ValueError as error:
                faults.append(f"another content from {mirror} ({error})")
        else:
            raise ValueError(
                f"data: expected to download {name}.gz to {folder}, got {'; '.join(faults)}. "
                "Give the folder of the four files with --data DIR."
            )
    return folder


def _labelled(found: dict[str, Path], part: str, checksums: bool) -> Labelled:
    """The images of one part, and as many labels."""
    names = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    values = []
    for name, dimensions in zip(names, (3, 1), strict=True):
        tensor, md5 = read_idx(found[name], dimensions)
        if checksums and md5 != FILES[name][1]:
            other = next((known for known, (_, right) in FILES.items() if right == md5), None)
            hint = f" That is {other}: are files swapped?" if other else " --set checksums=false takes it as it is."
            raise ValueError(f"{found[name]}: expected the MD5 {FILES[name][1]} of MNIST's {name}, got {md5}.{hint}")
        values.append(tensor)
    images, labels = values
    if not images.numel():
        raise ValueError(f"{found[names[0]]}: expected images, got {format_shape(images.shape)}")
    if len(images) != len(labels):
        raise ValueError(f"{found[names[1]]}: expected {len(images)} labels, one for each image, got {len(labels)}")
    if int(labels.max()) >= CLASSES:
        raise ValueError(f"{found[names[1]]}: expected labels from 0 to {CLASSES - 1}, got {int(labels.max())}")
    return Labelled(images, labels)

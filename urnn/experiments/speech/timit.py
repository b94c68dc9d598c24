"""TIMIT with its standard splits, in the LDC's layout (``TRAIN/DR1/FVMH0/SA1.WAV``) and NLTK's (``dr1-fvmh0/sa1.wav``).

Training: the 462 speakers of TRAIN, validation: the 50 development speakers out of TEST, evaluation: the 24 speakers of
the core test set; all without the two SA sentences, which everybody reads. That makes 3696, 400 and 192 utterances. The
paper prints 3690 for the first.
"""

import re
from collections import Counter
from pathlib import Path

from urnn.experiments.speech.corpora import Corpus, Utterance

_DEVELOPMENT = """
faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0 mglb0 mrtk0 mtaa0
mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0 mrcs0 mrjm4 fcal1 mmwh0 fjsj0 majc0
mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1
"""
_CORE_TEST = """
mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0
fdhc0 mjln0 mpam0 fmld0
"""
DEVELOPMENT = frozenset(_DEVELOPMENT.split())
CORE_TEST = frozenset(_CORE_TEST.split())
SPEAKERS = {"train": 462, "valid": 50, "eval": 24}
SENTENCES = 8
"""Of each speaker, without SA."""

_LDC = re.compile(r"(?:^|/)(train|test)/dr[1-8]/([fm][a-z]{3}\d)/(s[aix]\d+)\.wav$")
_NLTK = re.compile(r"(?:^|/)dr[1-8]-([fm][a-z]{3}\d)/(s[aix]\d+)\.wav$")


def files(folder: Path) -> list[tuple[str, str, Path]]:
    """Speaker, sentence and path of every TIMIT recording below a folder, SA sentences too."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix().lower()
        if match := _LDC.search(f"{folder.name.lower()}/{name}") or _NLTK.search(name):
            found.append((match.groups()[-2], match.groups()[-1], path))
    return found


def split_of(speaker: str, path: Path) -> str | None:
    """What a speaker is for; None for those of TEST in neither of the two lists."""
    if speaker in DEVELOPMENT:
        return "valid"
    if speaker in CORE_TEST:
        return "eval"
    return None if "test" in (part.lower() for part in path.parts[-4:-3]) else "train"


def find(folder: Path) -> Corpus:
    """The standard splits, without SA sentences; ``notes`` say what is missing."""
    utterances = [
        Utterance(f"{speaker}-{sentence}", speaker, split, path)
        for speaker, sentence, path in files(folder)
        if not sentence.startswith("sa") and (split := split_of(speaker, path)) is not None
    ]
    if not utterances:
        raise ValueError(f"timit: expected TRAIN/DR1/FVMH0/SX26.WAV or dr1-fvmh0/sx26.wav below {folder}, got none")
    repeated = [utt_id for utt_id, times in Counter(one.utt_id for one in utterances).items() if times > 1]
    if repeated:
        raise ValueError(f"timit: expected every recording once below {folder}, got {repeated[0]} twice")
    return Corpus(tuple(utterances), tuple(missing(utterances)))


def missing(utterances: list[Utterance]) -> list[str]:
    """A line for each split that is not whole: speakers and utterances expected and found, and whose are missing."""
    lines = []
    for split, speakers in SPEAKERS.items():
        counts = Counter(one.speaker for one in utterances if one.split == split)
        expected = SENTENCES * speakers
        if (found := sum(counts.values())) == expected and len(counts) == speakers:
            continue
        line = f"TIMIT {split}: expected {speakers} speakers and {expected} utterances, found {len(counts)} and {found}"
        if absent := sorted({"valid": DEVELOPMENT, "eval": CORE_TEST}.get(split, frozenset()) - counts.keys()):
            line += f"; no utterance of {', '.join(absent)}"
        if short := [f"{name} {n} of {SENTENCES}" for name, n in sorted(counts.items()) if n != SENTENCES]:
            line += f"; of {', '.join(short)}"
        lines.append(line)
    return lines

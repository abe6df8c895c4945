"""Three more real datasets, of other kinds than those we develop on, from data that anybody can install.

    python -m benchmarks.make_sets FOLDER [--wordnet FOLDER] [--icd FILE] [--packages FILE]

- wordnet: the beginning of a definition -> the words that it is filed under, and what they are filed under. From the
  files of WordNet 3.0, /usr/share/wordnet on Debian (package wordnet-base).
- icd: what a diagnosis is called -> its code in ICD-10-CM and the codes above it. From the tabular list in XML, which
  the Python package simple-icd-10-cm carries.
- debtags: name and short description of a Debian package -> its tags: few labels, most of them with many documents.
  From what `apt-cache dumpavail` prints.

Each is split 70:30 as `decaf split` does it and becomes a folder in FOLDER. What has no source is left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from decaf import Dataset
from decaf.config import SplitSettings, TableSettings

Rows = list[tuple[str, list[str]]]  # documents and the ids of their labels
Texts = dict[str, str]  # of labels, by id

_WORDS = 10  # of a definition
_ABOVE = ("@", "@i", "#m", "#p", "#s", ";c", "&", "+", "=")  # kinds of pointers in WordNet that name a label
_SHORT = 80  # characters of a description


def wordnet(folder: Path) -> tuple[Rows, Texts]:
    """Definitions, and the sets of synonyms that they point to."""
    words: dict[str, list[str]] = {}
    definitions: dict[str, str] = {}
    pointers: dict[str, list[tuple[str, str]]] = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith("  "):
                continue  # the licence
            body, _, gloss = line.partition("|")
            fields = body.split()
            count = int(fields[3], 16)
            name, rest = fields[2].replace("s", "a") + fields[0], fields[4 + 2 * count :]
            words[name] = [word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]
            definitions[name] = gloss.strip().partition(";")[0]
            at = range(1, 4 * int(rest[0]), 4)
            pointers[name] = [(rest[place], rest[place + 2] + rest[place + 1]) for place in at]
    rows: Rows = []
    for name, definition in definitions.items():
        labels = [to for kind, to in pointers[name] if kind in _ABOVE]
        for kind, to in pointers[name]:
            if kind in ("@", "@i"):
                labels += [above for again, above in pointers[to] if again == "@"]
        rows.append((" ".join(definition.split()[:_WORDS]), labels))
    return rows, {name: ", ".join(of[:2]) for name, of in words.items()}


def icd(file: Path) -> tuple[Rows, Texts]:
    """Names of diagnoses, and the codes on the way down to them."""
    rows: Rows = []
    texts: Texts = {}
    for section in ElementTree.parse(file).iter("section"):  # noqa: S314 - a file of the user's own choice
        texts[section.attrib["id"]] = section.findtext("desc", "")
        for diagnosis in section.findall("diag"):
            rows += _below(diagnosis, [section.attrib["id"]], texts)
    return rows, texts


def _below(diagnosis: ElementTree.Element, above: list[str], texts: Texts) -> Iterator[tuple[str, list[str]]]:
    code, name = diagnosis.findtext("name", ""), diagnosis.findtext("desc", "")
    texts[code] = name
    path = [*above, code]
    for kind in ("inclusionTerm", "includes"):
        for note in diagnosis.findall(f"{kind}/note"):
            yield note.text or "", path
    children = diagnosis.findall("diag")
    if not children:
        yield name, above  # its own code has this very text
    for child in children:
        yield from _below(child, path, texts)


def debtags(file: Path) -> tuple[Rows, Texts]:
    """Packages, and their tags."""
    rows: Rows = []
    texts: Texts = {}
    for paragraph in file.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line.startswith(" "):
                fields[key] += line
            else:
                key, _, fields[key] = line.partition(": ")
        tags = [tag.strip() for tag in fields.get("Tag", "").split(",") if tag.strip()]
        if tags:
            rows.append((f"{fields['Package']}: {fields.get('Description', '').partition('  ')[0][:_SHORT]}", tags))
            texts |= {tag: tag.replace("::", " ").replace(":", " ").replace("-", " ") for tag in tags}
    return rows, texts


def save(rows: Rows, texts: Mapping[str, str], folder: Path) -> Dataset:
    """Share the documents out and write the dataset."""
    with tempfile.TemporaryDirectory() as aside:
        documents, labels = Path(aside) / f"{folder.name}.jsonl", Path(aside) / "labels.jsonl"
        lines = (json.dumps({"text": text, "labels": sorted(set(of))}) for text, of in rows if text and of)
        documents.write_text("\n".join(lines) + "\n", encoding="utf-8")
        named = sorted({label for _, of in rows for label in of})
        lines = (json.dumps({"id": label, "text": texts[label]}) for label in named)
        labels.write_text("\n".join(lines) + "\n", encoding="utf-8")
        whole = Dataset.load(documents, table=TableSettings(label_file=str(labels)))
    split = whole.split(SplitSettings())
    split.save(folder)
    return split


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--wordnet", type=Path, help="folder of data.noun and its kin")
    options.add_argument("--icd", type=Path, help="the tabular list, XML")
    options.add_argument("--packages", type=Path, help="what apt-cache dumpavail printed")
    arguments = options.parse_args()
    sources = ((wordnet, arguments.wordnet), (icd, arguments.icd), (debtags, arguments.packages))
    for make, source in sources:
        if source is not None:
            made = save(*make(source), arguments.folder / make.__name__)
            print(f"{made.name}: {made.train.documents.count:,} training documents, {made.labels.count:,} labels")


if __name__ == "__main__":
    main()

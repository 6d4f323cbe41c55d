"""Samples of the embedded voice, to hear and to see, and the part of docs/explanation/voice.md that shows them.

    python bench/samples.py
    python bench/samples.py --against build/old/weights       the older voice beside the teacher too
    python bench/samples.py --clones 0 --no-teacher           without the teacher's packages (training/README.md)

Sounds go to docs/sounds/voice (mp3, 64 kbit/s), spectrograms to docs/images/voice; what was there before is removed.
The teacher, the codec and the voice say one sentence, every preset says it, every temperature is heard twice, several kinds
of text are read, and speakers that the training never heard are cloned. Nothing is chosen: the seed is 1, and 2 for the
second take.
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import systems
from machine import machine, report
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from parameters import TEMPERATURES, TEXT, picture
from PIL import Image

import voicelab as vl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "voice.md"
BEGIN, END = "<!-- made by bench/samples.py -->", "<!-- end of what is made -->"
MOST_BYTES = 1_700_000
REFERENCE_S = 6.0
TEXTS = {
    "a question": "Where did you put the keys, and who took them?",
    "numbers": "Dr. Lee paid $12.50 at 7:45 on May 3rd, 2024.",
    "several sentences": "The hogs were fed. It is easy to tell the depth of a well. A chicken leg is a rare dish.",
    "words that are in no dictionary": "The blorptastic zandrel quimbled past Vexlington.",
    "Mandarin": "今天天气很好，我们去公园吧。",
}
"""Read aloud where the voice can; what it cannot is left out."""
SPEAKERS = {"Mandarin": "mei"}
"""Who reads it, where it is not the default speaker."""


@dataclass(frozen=True)
class Sample:
    """One sound of a section."""

    title: str
    """What the page calls it."""
    clip: vl.Clip
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A heading of the page, its picture and its sounds."""

    name: str
    title: str
    words: str
    samples: tuple[Sample, ...]


def presets(lab: vl.Lab) -> Section:
    """Every preset, one sentence."""
    said = [Sample(v.id, lab.speak(TEXT, voice=v.id, seed=1), v.description) for v in lab.voices]
    return Section("presets", "Presets", f"“{TEXT}”, defaults, seed 1.", tuple(said))


def beside(lab: vl.Lab, old: bool) -> Section:
    """The teacher of the default preset, what the codec leaves of it, both models, and the older voice."""
    names = {"teacher": f"kokoro:{systems.taught_by('voice')}", "teacher through the codec": "codec"}
    names |= {"older voice": "old:voice"} if old else {}
    said = []
    for title, name in names.items():
        samples, rate = systems.speak(name, TEXT)
        said.append(
            Sample(title, vl.Clip(samples=samples, rate=rate), name.partition(":")[2] if name[0] == "k" else "")
        )
    said += [Sample(f"voice, {model}", lab.speak(TEXT, model=model, seed=1)) for model in ("s2-pro", "s1")]
    return Section("beside", "Beside its teacher", f"“{TEXT}”, the default preset and who taught it.", tuple(said))


def temperatures(lab: vl.Lab) -> Section:
    """Two takes of each temperature."""
    said = [
        Sample(f"{value:g}, take {seed}", lab.speak(TEXT, temperature=value, top_p=1.0, seed=seed))
        for value in TEMPERATURES
        for seed in ((1, 2) if value else (1,))
    ]
    return Section("temperature", "Temperatures", "The default speaker, top_p 1.", tuple(said))


def texts(lab: vl.Lab) -> Section:
    """What else is read."""
    said = []
    for title, text in TEXTS.items():
        try:
            said.append(Sample(title, lab.speak(text, voice=SPEAKERS.get(title), seed=1), text))
        except vl.VoicelabError as error:
            print(f"{title}: left out ({error})")
    return Section("texts", "Kinds of text", "The default speaker, Mandarin by mei; defaults.", tuple(said))


def clones(lab: vl.Lab, count: int) -> Section:
    """Recordings of speakers that were held out of training, their clones, and what the speakers themselves would say."""
    from clone import targets

    said: list[Sample] = []
    for number, target in enumerate(targets(count, REFERENCE_S, [TEXT]), start=1):
        recording = target.reference.slice(0.0, min(REFERENCE_S, target.reference.duration))
        reference = vl.ReferenceAudio(audio=recording.to_bytes("wav"), text="")
        said.append(Sample(f"{number}: recording", recording, "what the voice was given"))
        said.append(Sample(f"{number}: clone", lab.speak(TEXT, references=[reference], seed=1)))
        said.append(Sample(f"{number}: original", target.said[0], "the speaker's own, never given to the voice"))
    words = "Virtual speakers that training never heard: a recording, its clone, and the same words by the speaker."
    return Section("clones", "Clones", words, tuple(said))


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Write one picture of all spectrograms of a section, in a palette of 64 colours, which halves it."""
    columns = 3 if len(samples) % 3 == 0 else 2
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(9, 1.7 * rows + 0.3), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, sample in zip(panels, samples, strict=False):
        picture(axes, sample.clip, "")
        axes.set_title(sample.title, fontsize=9)
        axes.label_outer()
    for axes in panels[len(samples) :]:
        axes.set_axis_off()
    for axes in panels[-columns:]:
        axes.set_xlabel("time (s)")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    drawn.seek(0)
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)


def file_name(section: Section, sample: Sample) -> str:
    """Return the name of a sample's file."""
    plain = "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in sample.title)
    return f"{section.name}-{plain.replace('--', '-').strip('-')}.mp3"


def markdown(sections: Sequence[Section]) -> str:
    """Return the part of the page that shows the sections."""
    parts: list[str] = []
    for section in sections:
        parts += [f"### {section.title}\n", f"{section.words}\n"]
        parts += [f"![Spectrograms: {section.title.lower()}](../images/voice/{section.name}.png)\n"]
        for sample in section.samples:
            note = f": {sample.note}" if sample.note else ""
            parts.append(f"- [{sample.title}](../sounds/voice/{file_name(section, sample)}){note}")
        parts.append("")
    return "\n".join(parts)


def placed(page: str, made: str) -> str:
    """Return the page with what is made between its two comments."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{made}\n{END}{tail}"


def main() -> None:
    """Speak, draw, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=int, default=3, help="speakers that are cloned")
    parser.add_argument("--teacher", action=argparse.BooleanOptionalAction, default=True, help="the teacher beside it")
    parser.add_argument("--out", type=Path, help="another folder than docs/, whose page is left alone")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    out: Path = options.out or ROOT / "docs"
    lab = systems.lab()
    sections = [beside(lab, options.against is not None)] if options.teacher else []
    sections += [presets(lab), temperatures(lab), texts(lab)]
    sections += [clones(lab, options.clones)] if options.clones else []
    images, sounds = out / "images" / "voice", out / "sounds" / "voice"
    for folder in (images, sounds):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for section in sections:
        draw(section.samples, images / f"{section.name}.png")
        for sample in section.samples:
            sample.clip.save(sounds / file_name(section, sample), bitrate=64)
    size = sum(file.stat().st_size for folder in (images, sounds) for file in folder.iterdir())
    if size > MOST_BYTES:
        raise SystemExit(f"{size:,} bytes; the samples may take {MOST_BYTES:,}")
    if options.out is None:
        PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), markdown(sections)), encoding="utf-8")
    figures: dict[str, Any] = {section.name: len(section.samples) for section in sections}
    report({"figure": "samples of the voice", "samples": figures, "bytes": size, "machine": machine()})


if __name__ == "__main__":
    main()

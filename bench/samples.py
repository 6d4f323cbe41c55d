"""Audio samples and spectrograms of the embedded voice, and their section of docs/explanation/voice.md.

    python bench/samples.py
    python bench/samples.py --against build/old/weights       also with older weights
    python bench/samples.py --clones 0 --no-teacher           without the teacher's packages (training/README.md)

Audio is written to docs/sounds/voice (mp3, 64 kbit/s), spectrograms to docs/images/voice, replacing existing files. The
samples are one sentence by the teacher, the codec, the voice and every preset, two takes per temperature, several kinds of
text, and clones of held-out speakers. Samples are not selected: the seed is 1, and 2 for second takes.
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
from parameters import TEMPERATURES, TEXT, draw_spectrogram
from PIL import Image

import voicelab as vl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "voice.md"
BEGIN, END = "<!-- made by bench/samples.py -->", "<!-- end of what is made -->"
MAX_BYTES = 1_700_000
REFERENCE_S = 6.0
TEXTS = {
    "a question": "Where did you put the keys, and who took them?",
    "numbers": "Dr. Lee paid $12.50 at 7:45 on May 3rd, 2024.",
    "several sentences": "The hogs were fed. It is easy to tell the depth of a well. A chicken leg is a rare dish.",
    "words that are in no dictionary": "The blorptastic zandrel quimbled past Vexlington.",
    "Mandarin": "今天天气很好，我们去公园吧。",
}
"""Texts by kind; those that the voice cannot synthesize are skipped."""
SPEAKERS = {"Mandarin": "mei"}
"""Preset of a text, if not the default."""


@dataclass(frozen=True)
class Sample:
    """An audio sample of a section."""

    title: str
    """Title on the page."""
    clip: vl.Clip
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the page with its figure and samples."""

    name: str
    title: str
    words: str
    samples: tuple[Sample, ...]


def presets(lab: vl.Lab) -> Section:
    """Render one sentence by every preset."""
    items = [Sample(v.id, lab.speak(TEXT, voice=v.id, seed=1), v.description) for v in lab.voices]
    return Section("presets", "Presets", f"All presets read “{TEXT}” with default parameters and seed 1.", tuple(items))


def comparison(lab: vl.Lab, old: bool) -> Section:
    """Render the default preset's teacher, the teacher through the codec, both models, and older weights."""
    names = {"teacher": f"kokoro:{systems.taught_by('voice')}", "teacher through the codec": "codec"}
    names |= {"older voice": "old:voice"} if old else {}
    items = []
    for title, name in names.items():
        samples, rate = systems.speak(name, TEXT)
        items.append(
            Sample(title, vl.Clip(samples=samples, rate=rate), name.partition(":")[2] if name[0] == "k" else "")
        )
    items += [Sample(f"voice, {model}", lab.speak(TEXT, model=model, seed=1)) for model in ("s2-pro", "s1")]
    return Section(
        "beside", "Compared with its teacher", f"“{TEXT}” by the default preset and by its teacher.", tuple(items)
    )


def temperatures(lab: vl.Lab) -> Section:
    """Render two takes per temperature."""
    items = [
        Sample(f"{value:g}, take {seed}", lab.speak(TEXT, temperature=value, top_p=1.0, seed=seed))
        for value in TEMPERATURES
        for seed in ((1, 2) if value else (1,))
    ]
    return Section("temperature", "Temperatures", "The default speaker with top_p 1.", tuple(items))


def texts(lab: vl.Lab) -> Section:
    """Render kinds of text."""
    items = []
    for title, text in TEXTS.items():
        try:
            items.append(Sample(title, lab.speak(text, voice=SPEAKERS.get(title), seed=1), text))
        except vl.VoicelabError as error:
            print(f"{title}: skipped ({error})")
    return Section(
        "texts", "Kinds of text", "The default speaker with default parameters; mei reads Mandarin.", tuple(items)
    )


def clones(lab: vl.Lab, count: int) -> Section:
    """Render references of held-out speakers, their clones, and the same text by the speakers."""
    from clone import targets

    items: list[Sample] = []
    for number, target in enumerate(targets(count, REFERENCE_S, [TEXT]), start=1):
        recording = target.reference.slice(0.0, min(REFERENCE_S, target.reference.duration))
        reference = vl.ReferenceAudio(audio=recording.to_bytes("wav"), text="")
        items.append(Sample(f"{number}: recording", recording, "reference"))
        items.append(Sample(f"{number}: clone", lab.speak(TEXT, references=[reference], seed=1)))
        items.append(Sample(f"{number}: original", target.sentences[0], "the original speaker, held out of training"))
    words = "Virtual speakers held out of training: a recording, its clone, and the same text by the original speaker."
    return Section("clones", "Clones", words, tuple(items))


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Plot all spectrograms of a section, with a palette of 64 colors, which halves the file size."""
    columns = 3 if len(samples) % 3 == 0 else 2
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(9, 1.7 * rows + 0.3), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, sample in zip(panels, samples, strict=False):
        draw_spectrogram(axes, sample.clip, "")
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
    """Format the sections as Markdown."""
    parts: list[str] = []
    for section in sections:
        parts += [f"### {section.title}\n", f"{section.words}\n"]
        parts += [f"![Spectrograms: {section.title.lower()}](../images/voice/{section.name}.png)\n"]
        for sample in section.samples:
            note = f": {sample.note}" if sample.note else ""
            parts.append(f"- [{sample.title}](../sounds/voice/{file_name(section, sample)}){note}")
        parts.append("")
    return "\n".join(parts)


def insert(page: str, generated: str) -> str:
    """Insert generated text between the two comments of the page."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{generated}\n{END}{tail}"


def main() -> None:
    """Render, plot, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=int, default=3, help="number of cloned speakers")
    parser.add_argument("--teacher", action=argparse.BooleanOptionalAction, default=True, help="include the teacher")
    parser.add_argument("--out", type=Path, help="output folder instead of docs/; the page is not changed")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    out: Path = options.out or ROOT / "docs"
    lab = systems.lab()
    sections = [comparison(lab, options.against is not None)] if options.teacher else []
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
    if size > MAX_BYTES:
        raise SystemExit(f"the samples must have at most {MAX_BYTES:,} bytes, got {size:,}")
    if options.out is None:
        PAGE.write_text(insert(PAGE.read_text(encoding="utf-8"), markdown(sections)), encoding="utf-8")
    figures: dict[str, Any] = {section.name: len(section.samples) for section in sections}
    report({"figure": "samples of the voice", "samples": figures, "bytes": size, "machine": machine()})


if __name__ == "__main__":
    main()

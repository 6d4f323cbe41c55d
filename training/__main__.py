"""Makes the embedded voice, from nothing: ``python -m training``. Stages that are done are not done again.

Needs Debian's flite, flite1-dev, wordnet-base, festival, festvox-us-slt-hts, libespeak-ng1 and a C compiler, the Chinese
texts that `mandarin_text` fetches with apt-get, and the package with its ``local`` and ``dev`` extras.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from training import (
    codec,
    codes,
    export,
    features,
    guess,
    lexicon,
    listen,
    lm,
    mandarin,
    mandarin_text,
    mixed,
    natural,
    natural_codec,
    natural_codes,
    natural_lexicon,
    polish,
    render,
    source_filter,
    treble,
    understood,
    world,
)
from voicelab.engine.pointer.english import load_lexicon

BENCH = Path(__file__).parent.parent / "bench"
APART = ("natural", "understood", "world", "natural-lexicon", "head")
"""Stages of the natural voice, which is not shipped yet: run only where they are named."""


def evaluate(weights: Path, sentences: int, jobs: int) -> str:
    """Word errors, speed, and the picture of the models in a folder: the same commands that made the published figures."""
    picture = ["picture.py"] if weights == lexicon.OUT else ["picture.py", "--out", str(weights / "voice.png")]
    said = ["--systems", "rms,codec,voice,s1", "--sentences", str(sentences), "--jobs", str(jobs)]
    commands = (["voice.py", *said], ["speed.py"], picture)
    lines = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, str(BENCH / command[0]), "--weights", str(weights), *command[1:]],
            check=True,
            capture_output=True,
            text=True,
        )
        lines.append(done.stdout.splitlines()[-1])
        print(lines[-1], flush=True)
    return "\n".join(lines)


@contextmanager
def beside(folder: Path, stages: Sequence[str]) -> Iterator[None]:
    """Runs stages in another process, on one thread each: two make a step a quarter shorter only. Ends when both have."""
    threads = torch.get_num_threads()
    command = [sys.executable, "-m", "training", *sys.argv[1:], "--stages", ",".join(stages), "--threads", "1"]
    print(f"== {', '.join(stages)}, beside what follows; see {folder / 'beside.log'}", flush=True)
    with (
        (folder / "beside.log").open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ) as other,
    ):
        try:
            torch.set_num_threads(1)
            yield
        except BaseException:
            other.terminate()
            raise
        finally:
            torch.set_num_threads(threads)
    if other.returncode:
        raise SystemExit(f"{' '.join(command)} failed; {log.name} says why")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/voice"), help="where data and checkpoints go")
    parser.add_argument("--out", type=Path, default=lexicon.OUT, help="where the weights go; default: into the package")
    parser.add_argument(
        "--utterances", type=int, default=48_000, help="how many the teachers speak (48,000 are 55 hours)"
    )
    parser.add_argument("--mandarin", type=int, default=8_250, help="how many are Mandarin (8,250 are 7 hours)")
    parser.add_argument(
        "--natural-scale", type=float, default=1.0, help="share of the natural corpus (1 is 24 hours); read once"
    )
    parser.add_argument("--natural-shards", type=int, help="of 100 utterances, at most so many now")
    parser.add_argument("--judges", type=Path, help="the interpreter of the judges' environment: see training/ears.py")
    parser.add_argument("--guess-steps", type=int, default=2000, help="of the letter-to-sound model")
    parser.add_argument("--codec-steps", type=int, default=10_700, help="of the codec, more than 250")
    parser.add_argument(
        "--measured", type=int, default=32, help="shards (of 250 utterances) that the codec learns from"
    )
    parser.add_argument("--head-steps", type=int, default=120_000, help="of the natural voice's head")
    parser.add_argument(
        "--minutes", type=float, help="pause the natural voice's codec or head after so many; run it again"
    )
    parser.add_argument("--listen-steps", type=int, default=1_850, help="of the encoder over telephones")
    parser.add_argument("--polish-steps", type=int, default=5_600, help="of the decoder over audio")
    parser.add_argument("--s1-steps", type=int, default=4_650, help="of the small language model")
    parser.add_argument("--s2-steps", type=int, default=5_300, help="of the large one")
    parser.add_argument("--sentences", type=int, default=300, help="held-out sentences for the word errors at the end")
    parser.add_argument("--jobs", type=int, default=2, help="processes that render and recognise")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--stages", help="these alone, with commas between; what they need is there")
    return parser.parse_args()


Stage = Callable[[str, Callable[[], object]], None]


def _natural(stage: Stage, options: argparse.Namespace) -> None:
    """What comes before the language models of the natural voice; in a folder where `world` ran, codec and codes are its."""
    folder, most, minutes = options.folder, options.natural_shards, options.minutes
    stage(
        "natural",
        lambda: natural.render(
            folder,
            natural.fetch_voices(folder),
            lambda: mandarin_text.unpack(folder),
            jobs=options.jobs,
            scale=options.natural_scale,
            most=most,
        ),
    )
    stage("understood", lambda: understood.listen(folder, options.judges, most))
    stage("world", lambda: world.measure_all(folder, options.jobs, most))
    stage("natural-lexicon", lambda: lexicon.write(natural_lexicon.build(folder, load_lexicon()), folder / "weights"))
    if (folder / "world").is_dir():
        trained = folder / "codec-run.safetensors"
        stage("codec", lambda: natural_codec.train(folder, options.codec_steps, minutes))
        stage("head", lambda: source_filter.train(folder, options.head_steps, minutes))
        stage("codes", lambda: natural_codes.encode_all(folder, codec.load(trained)))


def _parametric(stage: Stage, options: argparse.Namespace) -> None:
    """The same of the voice that is distilled from flite and espeak-ng."""
    folder, jobs = options.folder, options.jobs
    stage("render", lambda: render.render(folder, options.utterances, jobs))
    stage("mandarin", lambda: mandarin.render(folder, options.mandarin, jobs))
    stage("lexicon", lambda: lexicon.write(lexicon.build(folder), options.out))
    stage("guess", lambda: guess.train(folder, options.guess_steps, options.out))
    stage("treble", lambda: treble.train(folder))
    stage("features", lambda: features.measure(folder, options.measured, jobs))
    stage("codec", lambda: codec.train(folder, options.codec_steps))
    # Its English is made of our own phones, so it waits for the lexicon and the guess.
    stage("mixed", lambda: mixed.render(folder, *mixed.shards(options.mandarin), options.out))
    stage("codes", lambda: codes.encode_all(folder, folder / "codec-run.safetensors", jobs=jobs))


def main() -> None:
    """Runs the stages in order; each is resumed where it was cut off."""
    options = _asked()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.threads:
        torch.set_num_threads(options.threads)
    log = folder / "stages.jsonl"

    def stage(name: str, work: Callable[[], object]) -> None:
        if name not in options.stages.split(",") if options.stages else name in APART:
            return
        started = time.time()
        print(f"== {name}", flush=True)
        result = work()
        line = {
            "stage": name,
            "minutes": round((time.time() - started) / 60, 1),
            "torch": torch.__version__,
            "machine": platform.machine(),
        }
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "result": str(result)}) + "\n")

    _natural(stage, options)
    if not (folder / "world").is_dir():
        _parametric(stage, options)
    trained = folder / "codec-run.safetensors"
    with beside(folder, ("s1", "listen", "polish")) if options.jobs > 1 and not options.stages else nullcontext():
        stage("s2-pro", lambda: lm.train(folder, codec.load(trained), "s2-pro", options.s2_steps))
    stage("s1", lambda: lm.train(folder, codec.load(trained), "s1", options.s1_steps))
    stage("listen", lambda: listen.train(folder, options.listen_steps))
    stage("polish", lambda: polish.train(folder, codec.load(trained), options.polish_steps))
    stage("export", lambda: export.export(folder, options.out))
    stage("evaluate", lambda: evaluate(options.out, options.sentences, options.jobs))


if __name__ == "__main__":
    main()

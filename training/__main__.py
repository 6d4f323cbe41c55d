"""Makes the embedded voice: ``python -m training``. Stages that are done are not done again, those cut off go on.

Needs Debian's wordnet-base, the teacher's and the judges' packages (training/README.md), the Chinese texts that
`mandarin_text` fetches with apt-get, and the package with its ``local`` and ``dev`` extras. CUDA is used if there.
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
from dataclasses import dataclass
from pathlib import Path

import torch

from training import (
    codec,
    codes,
    ears,
    export,
    guess,
    kept,
    lexicon,
    listen,
    lm,
    mandarin_text,
    polish,
    render,
    understood,
    world,
)
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.english import load_lexicon
from voicelab.engine.pointer.lm import LM

BENCH = Path(__file__).parent.parent / "bench"
STAGES = (
    *("render", "understood", "keep", "world", "lexicon", "guess", "codec", "codes"),
    *("s2-pro", "s1", "listen", "polish", "export", "evaluate"),
)


@dataclass(frozen=True)
class Start:
    """The weights that training goes on from; all None where it begins from nothing."""

    codec: Codec | None = None
    large: LM | None = None
    small: LM | None = None
    guess: Path | None = None

    @classmethod
    def of(cls, folder: Path | None) -> Start:
        """Of a folder of weights."""
        if folder is None:
            return cls()
        found = checkpoint.load(folder)
        return cls(found.codec, found.lm, checkpoint.load_small(found), folder)


def evaluate(options: argparse.Namespace) -> str:
    """Judges, speed, and the picture of the models in a folder: the same commands that made the published figures."""
    weights: Path = options.out
    picture = ["picture.py"] if weights == export.OUT else ["picture.py", "--out", str(weights / "voice.png")]
    said = ["--sentences", str(options.sentences), "--jobs", str(options.jobs)]
    environment = {**os.environ, "VOICELAB_BENCH_KOKORO": str(render.fetch_voices(options.folder).resolve())}
    if options.judges:
        environment[ears.VARIABLE] = str(options.judges.absolute())
    lines = []
    for name, *rest in (["voice.py", *said], ["speed.py", "--repeats", str(min(12, options.sentences))], picture):
        command = [sys.executable, str(BENCH / name), "--weights", str(weights), *rest]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
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


def _stages(said: str) -> list[str]:
    """The named stages; an error of the command line for a name that no stage has."""
    if wrong := [name for name in said.split(",") if name not in STAGES]:
        raise argparse.ArgumentTypeError(f"no stage is called {wrong[0]!r}: there are {', '.join(STAGES)}")
    return said.split(",")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/voice"), help="where data and checkpoints go")
    parser.add_argument("--out", type=Path, default=export.OUT, help="where the weights go; default: into the package")
    parser.add_argument(
        "--start", default=str(export.OUT), help="the weights to go on from, or 'nothing'; default: the package's"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the corpus (1 is 24 hours); read once")
    parser.add_argument("--shards", type=int, help="of 100 utterances each, at most so many now")
    parser.add_argument("--corpus", type=Path, default=kept.FOLDER, help="where what took hours is kept")
    parser.add_argument("--judges", type=Path, help="the interpreter of the judges' environment: see training/ears.py")
    parser.add_argument("--guess-steps", type=int, default=1000, help="of the letter-to-sound model")
    parser.add_argument("--codec-steps", type=int, default=4000, help="of the codec")
    parser.add_argument("--polish-steps", type=int, default=3000, help="of the decoder against its discriminator")
    parser.add_argument("--listen-steps", type=int, default=1000, help="of the encoder over telephones")
    parser.add_argument("--s1-steps", type=int, default=3000, help="of the small language model")
    parser.add_argument("--s2-steps", type=int, default=3000, help="of the large one")
    parser.add_argument("--minutes", type=float, help="pause each stage that trains after so many; run it again")
    parser.add_argument("--sentences", type=int, default=300, help="held-out sentences for the word errors at the end")
    parser.add_argument("--jobs", type=int, default=2, help="processes that render, measure and train")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--stages", type=_stages, help="these alone, with commas between; what they need is there")
    return parser.parse_args()


Stage = Callable[[str, Callable[[], object]], None]


def _speech(stage: Stage, options: argparse.Namespace, start: Start) -> None:
    """The corpus: what the teacher says, what of it is understood, and what is measured of it; the lexicon."""
    folder, most, jobs = options.folder, options.shards, options.jobs

    def chinese() -> Path:
        return mandarin_text.unpack(folder)

    stage(
        "render",
        lambda: render.render(
            folder,
            render.fetch_voices(folder),
            chinese,
            jobs=jobs,
            scale=options.scale,
            most=most,
            done_before=frozenset(path.stem for path in kept.files(options.corpus)),
        ),
    )
    stage("understood", lambda: understood.listen(folder, options.judges, most))
    if start.codec is not None:
        frozen = start.codec
        stage(
            "keep",
            lambda: kept.keep_all(folder, frozen, render.plan(folder, chinese), render.PER_SHARD, options.corpus),
        )
    stage("world", lambda: world.measure_all(folder, jobs, most))
    stage("lexicon", lambda: lexicon.write(lexicon.build(folder, load_lexicon()), folder))


def _models(stage: Stage, options: argparse.Namespace, start: Start) -> None:
    """All that trains: language models in two processes where there are two."""
    folder, minutes = options.folder, options.minutes
    trained = folder / "codec-run.safetensors"
    stage("guess", lambda: guess.train(folder, start.guess, options.guess_steps))
    stage("codec", lambda: codec.train(folder, start.codec, options.codec_steps, minutes))
    stage("codes", lambda: codes.encode_all(folder, codec.load(trained)))
    with beside(folder, ("s1", "listen", "polish")) if options.jobs > 1 and not options.stages else nullcontext():
        stage("s2-pro", lambda: lm.train(folder, start.large, "s2-pro", options.s2_steps, minutes))
    stage("s1", lambda: lm.train(folder, start.small, "s1", options.s1_steps, minutes))
    stage("listen", lambda: listen.train(folder, options.listen_steps, minutes))
    stage("polish", lambda: polish.train(folder, codec.load(trained), options.polish_steps, minutes))


def main() -> None:
    """Runs the stages in order; each is resumed where it was cut off."""
    options = _asked()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.threads:
        torch.set_num_threads(options.threads)
    log = folder / "stages.jsonl"

    def stage(name: str, work: Callable[[], object]) -> None:
        if options.stages and name not in options.stages:
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

    start = Start.of(None if options.start == "nothing" else Path(options.start))
    _speech(stage, options, start)
    _models(stage, options, start)
    stage("export", lambda: export.export(folder, options.out))
    stage("evaluate", lambda: evaluate(options))


if __name__ == "__main__":
    main()

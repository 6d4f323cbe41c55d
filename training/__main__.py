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
from functools import cache, partial
from pathlib import Path

import torch

from training import decoder, ears, export, guess, kept, lexicon, listen, lm, mandarin_text, render, understood
from training.codes import Encoded
from training.plan import Request
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.english import load_lexicon
from voicelab.engine.pointer.lm import LM

BENCH = Path(__file__).parent.parent / "bench"
STAGES = ("render", "understood", "keep", "lexicon", "guess", "decoder", "s2-pro", "s1", "listen", "export", "evaluate")


@dataclass(frozen=True)
class Start:
    """The weights that training goes on from: the frozen codec, and what there is besides."""

    codec: Codec
    large: LM | None = None
    small: LM | None = None
    guess: Path | None = None

    @classmethod
    def of(cls, said: str) -> Start:
        """Of a folder of weights; of "nothing" there is the package's codec."""
        if said == "nothing":
            return cls(checkpoint.load(export.OUT).codec)
        weights = checkpoint.load(Path(said))
        return cls(weights.codec, weights.lm, checkpoint.load_small(weights), Path(said))


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
        "--start",
        default=str(export.OUT),
        help="the weights to go on from, or 'nothing': the codec alone; default: the package's",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the plan (1 is 12 hours); read once")
    parser.add_argument("--shards", type=int, help="of 100 utterances each: render so many now, at most")
    parser.add_argument(
        "--corpus", type=Path, default=kept.FOLDER, help="where shards are kept; default: in the repository"
    )
    parser.add_argument("--judges", type=Path, help="the interpreter of the judges' environment: see training/ears.py")
    parser.add_argument("--guess-steps", type=int, default=1000, help="of the letter-to-sound model")
    parser.add_argument("--decoder-steps", type=int, default=2400, help="of the decoder, on what is rendered")
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


def _speech(stage: Stage, options: argparse.Namespace, codec: Codec) -> None:
    """The corpus, a few shards at a time: what the teacher says, what is understood of it and what kept; the lexicon."""
    folder, corpus, jobs = options.folder, options.corpus, options.jobs

    @cache
    def asked() -> list[Request]:
        plan = render.plan(folder, lambda: mandarin_text.unpack(folder), options.scale)
        kept.check_plan(plan, render.PER_SHARD, corpus)
        return plan

    rounds: list[render.Work] = [[]]
    if not options.stages or "render" in options.stages:
        names = frozenset(path.stem for path in kept.files(corpus))
        left = render.missing(folder, asked(), names)[: options.shards]
        rounds = [left[at : at + jobs] for at in range(0, len(left), jobs)] or rounds
    for work in rounds:
        stage("render", partial(_render, folder, work, jobs))
        stage("understood", lambda: understood.listen(folder, options.judges))
        stage("keep", lambda: kept.keep_all(folder, codec, asked(), render.PER_SHARD, corpus))
    stage("lexicon", lambda: lexicon.write(lexicon.build(asked(), load_lexicon()), folder))


def _render(folder: Path, work: render.Work, jobs: int) -> str:
    return render.render(folder, render.fetch_voices(folder), work, jobs) if work else "nothing is left"


def _models(stage: Stage, options: argparse.Namespace, start: Start) -> None:
    """All that trains, from what is kept alone: language models in two processes where there are two."""
    folder, corpus, minutes, codec = options.folder, options.corpus, options.minutes, start.codec

    @cache
    def said() -> list[Encoded]:
        return kept.everything(corpus, codec)

    def language_model(name: str, model: LM | None, steps: int) -> None:
        stage(name, lambda: lm.train(folder, said(), codec.config, model, name, steps, minutes))

    stage("guess", lambda: guess.train(folder, start.guess, options.guess_steps))
    stage("decoder", lambda: decoder.train(folder, codec, options.decoder_steps, minutes))
    with beside(folder, ("s1", "listen")) if options.jobs > 1 and not options.stages else nullcontext():
        language_model("s2-pro", start.large, options.s2_steps)
    language_model("s1", start.small, options.s1_steps)
    stage("listen", lambda: listen.train(folder, corpus, codec, options.listen_steps, minutes))
    stage("export", lambda: export.export(folder, said(), codec, options.out))


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

    start = Start.of(options.start)
    _speech(stage, options, start.codec)
    _models(stage, options, start)
    stage("evaluate", lambda: evaluate(options))


if __name__ == "__main__":
    main()

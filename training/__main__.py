"""Train the embedded voice: ``python -m training``. Completed stages are skipped, interrupted ones resume.

Requires Debian's wordnet-base, the packages of the teacher and the evaluators (training/README.md), the Chinese texts that
`mandarin_text` fetches with apt-get, and the package with its ``local`` and ``dev`` extras. CUDA is used if available.
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
    """Initial weights: the frozen codec, and optionally the language models and the letter-to-sound model."""

    codec: Codec
    large: LM | None = None
    small: LM | None = None
    guess: Path | None = None

    @classmethod
    def of(cls, source: str) -> Start:
        """Load from a folder of weights; "nothing" loads only the packaged codec."""
        if source == "nothing":
            return cls(checkpoint.load_codec(export.OUT / checkpoint.EMBEDDED))
        folder = Path(source)
        large = folder / checkpoint.EMBEDDED
        codec, lm, small = (
            checkpoint.load_codec(large),
            checkpoint.load_lm(large),
            checkpoint.load_lm(folder / checkpoint.S1_FILE),
        )
        return cls(codec, lm, small, folder)


def evaluate(options: argparse.Namespace) -> str:
    """Run the benchmarks of quality and speed, and the spectrogram plot, on the trained weights."""
    weights: Path = options.out
    picture = ["picture.py"] if weights == export.OUT else ["picture.py", "--out", str(weights / "voice.png")]
    arguments = ["--sentences", str(options.sentences), "--jobs", str(options.jobs)]
    environment = {**os.environ, "VOICELAB_BENCH_KOKORO": str(render.fetch_voices(options.folder).resolve())}
    if options.judges:
        environment[ears.VARIABLE] = str(options.judges.absolute())
    lines = []
    for name, *rest in (["voice.py", *arguments], ["speed.py", "--repeats", str(min(12, options.sentences))], picture):
        command = [sys.executable, str(BENCH / name), "--weights", str(weights), *rest]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        lines.append(process.stdout.splitlines()[-1])
        print(lines[-1], flush=True)
    return "\n".join(lines)


@contextmanager
def background_stages(folder: Path, stages: Sequence[str]) -> Iterator[None]:
    """Run stages in another process, with one thread per process, since a second thread saves only 25 % per step."""
    threads = torch.get_num_threads()
    command = [sys.executable, "-m", "training", *sys.argv[1:], "--stages", ",".join(stages), "--threads", "1"]
    print(f"== {', '.join(stages)}, in the background; see {folder / 'beside.log'}", flush=True)
    with (
        (folder / "beside.log").open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ) as process,
    ):
        try:
            torch.set_num_threads(1)
            yield
        except BaseException:
            process.terminate()
            raise
        finally:
            torch.set_num_threads(threads)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed; see {log.name}")


def _stages(argument: str) -> list[str]:
    """Parse a comma-separated list of stages."""
    if unknown := [name for name in argument.split(",") if name not in STAGES]:
        raise argparse.ArgumentTypeError(f"stages must be of {', '.join(STAGES)}, got {unknown[0]!r}")
    return argument.split(",")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/voice"), help="folder of data and checkpoints")
    parser.add_argument(
        "--out", type=Path, default=export.OUT, help="output folder of the weights; default: the package"
    )
    parser.add_argument(
        "--start",
        default=str(export.OUT),
        help="initial weights, or 'nothing' for the codec only; default: the packaged weights",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="fraction of the plan (1 is 12 hours); only used when the plan is drawn",
    )
    parser.add_argument("--shards", type=int, help="maximum number of shards (100 utterances each) to render now")
    parser.add_argument(
        "--corpus", type=Path, default=kept.FOLDER, help="folder of encoded shards; default: in the repository"
    )
    parser.add_argument("--judges", type=Path, help="interpreter of the evaluators' environment, see training/ears.py")
    parser.add_argument("--guess-steps", type=int, default=1000, help="steps of the letter-to-sound model")
    parser.add_argument("--decoder-steps", type=int, default=2400, help="steps of the decoder, on rendered audio")
    parser.add_argument("--listen-steps", type=int, default=1000, help="steps of the encoder on telephone speech")
    parser.add_argument("--s1-steps", type=int, default=3000, help="steps of the small language model")
    parser.add_argument("--s2-steps", type=int, default=3000, help="steps of the large language model")
    parser.add_argument("--minutes", type=float, help="pause each training stage after this time; rerun to resume")
    parser.add_argument("--sentences", type=int, default=300, help="held-out sentences of the final evaluation")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--stages", type=_stages, help="run only these comma-separated stages")
    return parser.parse_args()


Stage = Callable[[str, Callable[[], object]], None]


def _speech(stage: Stage, options: argparse.Namespace, codec: Codec) -> None:
    """Build the corpus shard by shard (render, filter by ASR, encode), and the lexicon."""
    folder, corpus, jobs = options.folder, options.corpus, options.jobs

    @cache
    def requests() -> list[Request]:
        plan = render.plan(folder, lambda: mandarin_text.unpack(folder), options.scale)
        kept.check_plan(plan, render.PER_SHARD, corpus)
        return plan

    rounds: list[render.Work] = [[]]
    if not options.stages or "render" in options.stages:
        names = frozenset(path.stem for path in kept.files(corpus))
        pending = render.missing(folder, requests(), names)[: options.shards]
        rounds = [pending[start : start + jobs] for start in range(0, len(pending), jobs)] or rounds
    for work in rounds:
        stage("render", partial(_render, folder, work, jobs))
        stage("understood", lambda: understood.listen(folder, options.judges))
        stage("keep", lambda: kept.keep_all(folder, codec, requests(), render.PER_SHARD, corpus))
    stage("lexicon", lambda: lexicon.write(lexicon.build(requests(), load_lexicon()), folder))


def _render(folder: Path, work: render.Work, jobs: int) -> str:
    return render.render(folder, render.fetch_voices(folder), work, jobs) if work else "all shards are rendered"


def _models(stage: Stage, options: argparse.Namespace, start: Start) -> None:
    """Train all models from the encoded corpus; with two jobs, language models in two processes."""
    folder, corpus, minutes, codec = options.folder, options.corpus, options.minutes, start.codec

    @cache
    def utterances() -> list[Encoded]:
        return kept.load_all(corpus, codec)

    def language_model(name: str, model: LM | None, steps: int) -> None:
        stage(name, lambda: lm.train(folder, utterances(), codec.config, model, name, steps, minutes))

    stage("guess", lambda: guess.train(folder, start.guess, options.guess_steps))
    stage("decoder", lambda: decoder.train(folder, codec, options.decoder_steps, minutes))
    with background_stages(folder, ("s1", "listen")) if options.jobs > 1 and not options.stages else nullcontext():
        language_model("s2-pro", start.large, options.s2_steps)
    language_model("s1", start.small, options.s1_steps)
    stage("listen", lambda: listen.train(folder, corpus, codec, options.listen_steps, minutes))
    stage("export", lambda: export.export(folder, utterances(), codec, options.out))


def main() -> None:
    """Run the stages in order, resuming interrupted ones."""
    options = _options()
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

"""Forks servers, sends each voices to make, and kills it after a moment: FOLDER TIMES. Says what was answered with 201."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import httpx

from tests.engine.tiny import make_codec, make_lm, speaker
from tests.speechlike import speech_file
from voicelab.call import VoicePreset
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.checkpoint import save
from voicelab.service.keys import KeyStore
from voicelab.service.run import running
from voicelab.voices.store import VoiceStore

folder, times = Path(sys.argv[1]), int(sys.argv[2])
weights, wait = folder / "tiny.safetensors", random.Random(4)
save(weights, make_codec(), make_lm(), {VoicePreset("ada", "Ada"): speaker()}, {})
with KeyStore(folder / "keys") as made:
    secret = made.create("ann").secret
os.environ["VOICELAB_RECOGNIZER"] = "none"


def serve(told: int) -> None:
    with VoiceStore(folder / "voices", exclusive=True, busy_s=30) as store, KeyStore(folder / "keys") as keys:
        engine = LocalBackend("cpu", threads=1, weights=weights, voices=store)
        with running(engine, keys=keys) as url:
            os.write(told, url.encode())
            time.sleep(600)


for turn in range(times):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        serve(told)
    url = os.read(heard, 200).decode()
    threading.Timer(wait.uniform(0.4, 1.6), os.kill, (child, signal.SIGKILL)).start()
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {secret}"}, trust_env=False) as client:
        for number in range(1000):
            title = f"{turn}-{number}"
            files = {"voices": speech_file(0.8, 100 + turn + number)}
            form = {"type": "tts", "title": title, "train_mode": "fast", "visibility": "private"}
            try:
                answer = client.post("/model", data=form, files=files)
            except httpx.TransportError:
                break
            if answer.status_code == 201:
                sys.stdout.write(f"{answer.json()['_id']} {title}\n")
    os.waitpid(child, 0)
    os.close(heard)
    os.close(told)

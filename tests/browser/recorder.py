"""A recording node before every output of a page: the samples that reach it, each with its time."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Every node that is connected to an output is connected to a processor too, which hands over what it is given.
# `pressed` is the time of the audio, as the page knows it, when a key went down: before anything answers to it.
_RECORD = """
async () => {
  if (window.tape) return;
  const source = `registerProcessor("tape", class extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) this.port.postMessage({ frame: currentFrame, samples: samples.slice() });
      return true;
    }
  })`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  window.tape = { blocks: [], pressed: [], context: null };
  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (to, ...rest) {
    if (to instanceof AudioDestinationNode && this.context instanceof AudioContext) {
      const { context } = this;
      const node = this;
      context.audioWorklet.addModule(url).then(() => {
        const processor = new AudioWorkletNode(context, "tape", { numberOfOutputs: 0 });
        processor.port.onmessage = ({ data }) => {
          if (tape.context !== context) return;
          tape.blocks.push(data);
          const place = data.samples.findIndex((value) => Math.abs(value) > tape.level);
          if (tape.sounded || place < 0) return;
          // When that sample left, by the clock of the page, which is the machine's.
          const { contextTime, performanceTime } = context.getOutputTimestamp();
          const ahead = (data.frame + place) / context.sampleRate - contextTime;
          tape.sounded = (performance.timeOrigin + performanceTime) / 1000 + ahead;
        };
        connect.call(node, processor);
        tape.context = context;
      });
    }
    return connect.call(this, to, ...rest);
  };
  document.addEventListener("keydown", () => tape.context && tape.pressed.push(tape.context.currentTime), true);
}
"""
_PLAYED = """
() => {
  const { blocks, pressed, context } = tape;
  const first = blocks[0]?.frame ?? 0;
  // On a busy machine Chromium tells several blocks the frame of the first of them: none stands before the end of another.
  let end = first;
  const places = blocks.map(({ frame, samples }) => {
    const place = Math.max(frame, end);
    end = place + samples.length;
    return place - first;
  });
  const whole = new Float32Array(end - first);
  blocks.forEach(({ samples }, index) => whole.set(samples, places[index]));
  const bytes = new Uint8Array(whole.buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return { sound: btoa(text), first, pressed, rate: context.sampleRate };
}
"""


def record(page: Page) -> None:
    """Record from now on what panels that open later play. Forgets what was recorded."""
    page.evaluate(_RECORD)
    page.evaluate("() => Object.assign(tape, { blocks: [], pressed: [], context: null })")


def listen(page: Page, level: float) -> None:
    """Begin anew to wait for a sample louder than ``level``; what is recorded already is forgotten."""
    page.evaluate("(level) => Object.assign(tape, { blocks: [], pressed: [], sounded: null, level })", level)


def sounded(page: Page) -> float:
    """Return when the first sample louder than that was at the output, in seconds since 1970."""
    page.wait_for_function("() => tape.sounded", timeout=60_000)
    return float(page.evaluate("() => tape.sounded"))


def recording(page: Page) -> None:
    """Wait until an output is recorded."""
    page.wait_for_function("() => tape.context")


def heard_more(page: Page, seconds: float) -> None:
    """Wait until so much has been recorded after the last key that went down: however slow the machine is."""
    page.wait_for_function(
        """(seconds) => {
          const { blocks, pressed, context } = tape;
          const { frame, samples } = blocks.at(-1) ?? { frame: 0, samples: [] };
          return (frame + samples.length) / context.sampleRate >= (pressed.at(-1) ?? 0) + seconds;
        }""",
        arg=seconds,
        timeout=60_000,
    )


def played(page: Page) -> tuple[np.ndarray[Any, np.dtype[np.float32]], int, list[int]]:
    """Return the samples that reached the output, their rate in Hz, and the places in them where keys went down."""
    told = page.evaluate(_PLAYED)
    sound = np.frombuffer(base64.b64decode(told["sound"]), np.float32)
    return sound, told["rate"], [round(at * told["rate"]) - told["first"] for at in told["pressed"]]

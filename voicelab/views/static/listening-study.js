// The pages of a study around its questions, and a study without a server: its questions in files, its answers kept by
// the browser until they are sent.

import { element } from "./dom.js";

const ENDS = {
  full: "This study has all its listeners. Thank you for coming.",
  consent: "You did not agree, so nothing more is asked.",
  qualification: "This study looks for other listeners. Thank you for coming.",
  headphones: "This study needs headphones, and the check did not go as it does with them. Thank you for coming.",
};
const WEAR = "Put on your headphones, both sides, and answer six questions. They find out whether you wear them.";

export function paragraphs(text) {
  return text.split("\n").map((line) => element("p", {}, {}, line));
}

/** A form of `parts` that `send` is called by; `more` are other buttons. */
function form(parts, label, send, ...more) {
  const button = element("button", { type: "submit", className: "voicelab-next" }, {}, label);
  const box = element("form", { className: "voicelab-form" }, {}, ...parts, element("div", {}, {}, button, ...more));
  box.onsubmit = (event) => {
    event.preventDefault();
    send();
  };
  return box;
}

function consent({ consent: text }, send) {
  const no = element("button", { type: "button" }, {}, "I do not agree");
  no.onclick = () => send({ agreed: false });
  const yes = () => send({ agreed: true });
  return [element("h2", {}, {}, "Consent"), ...paragraphs(text), form([], "I agree", yes, no)];
}

/** A field of the questionnaire, and what reads its answer. */
function field({ name, text, kind, options, required, low, high }) {
  const label = element("span", {}, {}, required ? text : `${text} (not required)`);
  if (kind === "choice") {
    const input = element("select", { required, name });
    input.append(...["", ...options].map((option) => element("option", { value: option }, {}, option)));
    return [element("label", {}, {}, label, input), () => input.value];
  }
  const more = kind === "number" ? { type: "number", min: low, max: high, step: "any" } : { type: "text", maxLength: 5000 };
  const input = element("input", { required, name, autocomplete: "off", ...more });
  const read = () => (kind === "number" ? (input.value === "" ? null : input.valueAsNumber) : input.value);
  return [element("label", {}, {}, label, input), read];
}

function questionnaire({ questions }, send) {
  const fields = questions.map((one) => [one.name, ...field(one)]);
  const read = () => send(Object.fromEntries(fields.map(([name, , value]) => [name, value()])));
  return [element("h2", {}, {}, "About you"), form(fields.map(([, box]) => box), "Next", read)];
}

function comment({ comment: text }, send) {
  const input = element("textarea", { rows: 5, maxLength: 5000 });
  const label = element("label", {}, {}, element("span", {}, {}, text), input);
  return [element("h2", {}, {}, "One more question"), form([label], "Finish", () => send({ comment: input.value }))];
}

/** What stands on the page of a step that plays no sound; `send` takes its answers. */
export const PAGES = { consent, questionnaire, comment };

export function wear(go) {
  return [element("h2", {}, {}, "Headphones"), element("p", {}, {}, WEAR), form([], "Begin", go)];
}

export function pause(done, total, go) {
  const text = `${done} of ${total} questions are answered. Rest as long as you like.`;
  return [element("h2", {}, {}, "A pause"), element("p", {}, {}, text), form([], "Go on", go)];
}

/** How it ends; `state.answers` are there where no server has them. */
export function ending({ end, reason, code, return_to: address, answers, mail }) {
  if (end !== "finished") return [element("h2", {}, {}, "The end"), element("p", {}, {}, ENDS[reason ?? end])];
  const parts = [element("h2", {}, {}, "Thank you")];
  if (!answers) parts.push(element("p", {}, {}, "Your answers are saved."));
  else {
    const file = new Blob([JSON.stringify(answers)], { type: "application/json" });
    const save = { href: URL.createObjectURL(file), download: `answers-${answers.listener}.json` };
    const text = mail ? `Save your answers, and send the file to ${mail}.` : "Save your answers, and send the file to us.";
    parts.push(element("p", {}, {}, text), element("a", save, {}, "Save the answers"));
    if (mail) parts.push(element("a", { href: `mailto:${mail}?subject=Listening%20study` }, {}, "Write the mail"));
  }
  if (code) parts.push(element("p", {}, {}, "Your code: ", element("strong", { className: "voicelab-code" }, {}, code)));
  if (address) parts.push(element("a", { href: address }, {}, "Go back to where you came from"));
  return parts;
}

/** The line of a static page: what the server would say, from `study.json`; answers stay in the browser's store. */
export function overFiles() {
  let files;
  let mine;
  const key = () => `voicelab ${files.id}`;
  const keep = () => localStorage.setItem(key(), JSON.stringify(mine));
  const json = async (path) => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(`${path}: the host answered ${answer.status}`);
    return answer.json();
  };
  const block = () => json(`blocks/${mine.block}.json`);
  const random = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("");

  /** Send the answers, where an address takes them; once they were taken, never again. */
  async function sent() {
    if (!files.to.includes("//")) return { answers: mine, mail: files.to };
    if (!mine.sent) {
      const body = { method: "POST", body: JSON.stringify(mine), headers: { "content-type": "application/json" } };
      const answer = await fetch(files.to, body);
      if (!answer.ok) throw new Error(`Your answers are kept here, but could not be sent (${answer.status}). Load this page again.`);
      mine.sent = true;
      keep();
    }
    return {};
  }

  async function state() {
    if (mine.steps.left) return { end: "left", ...mine.steps.left };
    const steps = files.steps.filter((step) => !(step in mine.steps));
    if (!steps.length) return { end: "finished", code: files.code, return_to: files.return_to, ...(await sent()) };
    const { volume, training, headphones } = await block();
    const first = "headphones 1" in mine.steps ? 6 : 0;
    return { listener: mine.block, steps, volume, training, headphones: headphones.slice(first, first + 6) };
  }

  async function step(_, name, answers) {
    const leave = (reason) => (mine.steps.left = { reason });
    if (name === "headphones") {
      const again = "headphones 1" in mine.steps;
      const { right: wanted } = await block();
      const right = answers.answers.filter((one, i) => one === wanted[i + (again ? 6 : 0)]).length;
      const passed = right >= files.needed;
      mine.steps[passed ? name : `headphones ${again ? 2 : 1}`] = { right };
      if (again && !passed) leave(name);
    } else {
      const asked = files.test.study.questions.filter(({ accept }) => accept.length);
      mine.steps[name] = answers;
      if (name === "consent" && !answers.agreed) leave(name);
      if (name === "questionnaire" && asked.some((one) => !one.accept.includes(answers[one.name]))) leave("qualification");
    }
    keep();
    return state();
  }

  return {
    test: async () => (files = await json("study.json")).test,
    join: async () => {
      const drawn = { listener: random(), block: Math.floor(Math.random() * files.blocks) };
      const fresh = { ...drawn, design: files.design, steps: {}, votes: [] };
      mine = JSON.parse(localStorage.getItem(key())) ?? fresh;
      keep();
      return state();
    },
    step,
    trial: async () => {
      const done = new Set(mine.votes.map(({ trial }) => trial));
      return (await block()).trials.find(({ id }) => !done.has(id)) ?? null;
    },
    sound: async (id) => (await fetch(`sounds/${id}.wav`)).arrayBuffer(),
    vote: async (_, trial, body) => {
      if (!mine.votes.some((one) => one.trial === trial)) mine.votes.push({ trial, ...body });
      keep();
    },
  };
}

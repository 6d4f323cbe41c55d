// Pages of a study other than its trials, and the transport of a static study, which reads trials from files and keeps
// responses in the browser's storage until they are submitted.

import { element } from "./dom.js";

const ENDS = {
  full: "This study has all its listeners. Thank you for your interest.",
  busy: "All places of this study are taken at the moment. Please come back later.",
  consent: "You did not give consent, so the study ends here.",
  qualification: "You do not meet the requirements of this study. Thank you for your interest.",
  headphones: "This study requires headphones, and the headphone check failed. Thank you for your interest.",
};
const WEAR = "Put on your headphones, with left and right as marked, and answer six questions that check whether you wear them.";

export function paragraphs(text) {
  return text.split("\n").map((line) => element("p", {}, {}, line));
}

/** Return a form of `parts` that calls `send` on submit; `more` are additional buttons. */
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

/** Return a field of the questionnaire, and a function that reads its value. */
function field({ name, text, kind, options, required, low, high }) {
  const label = element("span", {}, {}, required ? text : `${text} (optional)`);
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

/** Return a form of questions. */
function asking(questions, label, send) {
  const fields = questions.map((one) => [one.name, ...field(one)]);
  const read = () => send(Object.fromEntries(fields.map(([name, , value]) => [name, value()])));
  return form(fields.map(([, box]) => box), label, read);
}

function questionnaire({ questions }, send) {
  const asked = questions.filter(({ when }) => when !== "breaks");
  return [element("h2", {}, {}, "About you"), asking(asked, "Next", send)];
}

function comment({ comment: text }, send) {
  const input = element("textarea", { rows: 5, maxLength: 5000 });
  const label = element("label", {}, {}, element("span", {}, {}, text), input);
  return [element("h2", {}, {}, "Final question"), form([label], "Finish", () => send({ comment: input.value }))];
}

/** Pages of steps without audio; `send` submits their answers. */
export const PAGES = { consent, questionnaire, comment };

export function wear(go) {
  return [element("h2", {}, {}, "Headphones"), element("p", {}, {}, WEAR), form([], "Begin", go)];
}

export function pause(done, total, questions, go) {
  const text = `${done} of ${total} questions are answered. Take a break as long as you like.`;
  return [element("h2", {}, {}, "Break"), element("p", {}, {}, text), asking(questions, "Continue", go)];
}

/** Return the final page. `state.answers` is present if the answers are not stored on a server. */
export function ending({ end, reason, code, return_to: address, answers, mail }) {
  if (end !== "finished") return [element("h2", {}, {}, "End of the study"), element("p", {}, {}, ENDS[reason ?? end])];
  const parts = [element("h2", {}, {}, "Thank you")];
  if (!answers) parts.push(element("p", {}, {}, "Your answers are saved."));
  else {
    const file = new Blob([JSON.stringify(answers)], { type: "application/json" });
    const save = { href: URL.createObjectURL(file), download: `answers-${answers.listener}.json` };
    const text = mail ? `Save your answers and send the file to ${mail}.` : "Save your answers and send the file to us.";
    parts.push(element("p", {}, {}, text), element("a", save, {}, "Save the answers"));
    if (mail) parts.push(element("a", { href: `mailto:${mail}?subject=Listening%20study` }, {}, "Write an email"));
  }
  if (code) parts.push(element("p", {}, {}, "Your code: ", element("strong", { className: "voicelab-code" }, {}, code)));
  if (address) parts.push(element("a", { href: address }, {}, "Return to the study platform"));
  return parts;
}

/** Return the 32-bit FNV-1a hash of an answer, to compare with the hashes of accepted answers in a static page. */
export function answerHash(name, answer) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(`${name}=${answer}`)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

/** Return the transport of a static page, which reads `study.json` and keeps responses in the browser's storage. */
export function overFiles() {
  let files;
  let mine;
  const key = () => `voicelab ${files.id}`;
  const keep = () => localStorage.setItem(key(), JSON.stringify(mine));
  const json = async (path) => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(`${path}: HTTP ${answer.status}`);
    return answer.json();
  };
  const block = () => json(`blocks/${mine.block}.json`);
  const random = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("");

  /** Submit the answers once, if there is an address. */
  async function sent() {
    if (!files.to.includes("//")) return { answers: mine, mail: files.to };
    if (!mine.sent) {
      const body = { method: "POST", body: JSON.stringify(mine), headers: { "content-type": "application/json" } };
      const answer = await fetch(files.to, body);
      if (!answer.ok) throw new Error(`Your answers are saved in this browser but could not be sent (${answer.status}). Reload this page.`);
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
      const first = again ? 6 : 0;
      const isRight = (one, i) => answerHash(`headphones ${first + i}`, one) === wanted[first + i];
      const right = answers.answers.filter(isRight).length;
      const passed = right >= files.needed;
      mine.steps[passed ? name : `headphones ${again ? 2 : 1}`] = { right };
      if (again && !passed) leave(name);
    } else {
      const asked = files.test.study.questions.filter(({ accept }) => accept.length);
      mine.steps[name] = answers;
      if (name === "consent" && !answers.agreed) leave(name);
      const fails = (one) => !one.accept.includes(answerHash(one.name, answers[one.name]));
      if (name === "questionnaire" && asked.some(fails)) leave("qualification");
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

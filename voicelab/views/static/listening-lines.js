// Transports of a listening test: HTTP to a server, messages to a notebook's kernel.

/** Return a random number that identifies a view among all views of a kernel. */
export function unique() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

/** Return this browser's id, so that equal names in two browsers are two listeners. It is a cookie, shared by ports. */
function session() {
  const kept = document.cookie.match(/(?:^|; )voicelab-listener=([\w-]+)/)?.[1];
  const name = kept ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");
  document.cookie = `voicelab-listener=${name}; max-age=${90 * 24 * 3600}; path=/; SameSite=Strict`;
  return name;
}

/** Fetch with retries and exponential backoff after network errors and 502 to 504, so that no answer is lost. */
async function patiently(path, options) {
  for (let tries = 0; ; tries += 1) {
    const answer = await fetch(path, options).catch((error) => error);
    const full = answer.status >= 502 && answer.status <= 504;
    if (!(answer instanceof Error) && !full) return answer;
    if (tries >= (full ? 7 : 3)) {
      if (full) return answer;
      throw new Error("No connection. Your answers are saved; try again.");
    }
    await new Promise((go) => setTimeout(go, 400 * 2 ** tries * (0.5 + Math.random())));
  }
}

/** Return the transport of a page that voicelab serves. */
export function overHttp(base = "") {
  const secret = session();
  const id = new URLSearchParams(location.search).get("id") ?? "";
  const call = async (path, body) => {
    const headers = { "content-type": "application/json", "x-voicelab-listener": secret };
    const options = body ? { method: "POST", body: JSON.stringify(body), headers } : { headers };
    const answer = await patiently(`${base}${path}`, options);
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.message ?? `the server answered ${answer.status}`);
  };
  const json = async (path, body) => (await call(path, body)).json();
  return {
    test: () => json("api/test"),
    join: (name) => json("api/listeners", { name, session: secret, id }),
    step: (listener, step, answers) => json(`api/listeners/${listener}/steps`, { step, answers }),
    trial: async (listener) => (await json(`api/listeners/${listener}/trial`)).trial,
    sound: async (id) => (await call(`api/sounds/${id}`)).arrayBuffer(),
    vote: (listener, trial, body) => json(`api/listeners/${listener}/votes`, { trial, ...body }),
  };
}

/** Return the transport of a notebook's widget: numbered requests and responses. */
export function overMessages(model) {
  const open = new Map();
  const page = unique(); // every view of the model receives all answers
  let last = 0;
  model.on("msg:custom", (message, buffers) => {
    const waiting = open.get(message.number);
    if (!waiting) return;
    open.delete(message.number);
    if (message.error) waiting.reject(new Error(message.error));
    else waiting.resolve(buffers.length ? buffers[0] : message.value);
  });
  let gone = null;
  model.on("comm_live_update", () => {
    gone = new Error("Kernel disconnected; the responses so far are saved. Run the cell again.");
    for (const { reject } of open.values()) reject(gone);
    open.clear();
  });
  const ask = (call, fields) =>
    new Promise((resolve, reject) => {
      if (gone) return reject(gone);
      last += 1;
      const number = `${page}-${last}`;
      open.set(number, { resolve, reject });
      model.send({ number, call, ...fields });
    });
  // decodeAudioData detaches the buffer, and a DataView may be a view of a larger buffer.
  const copy = (view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return {
    test: () => ask("test"),
    join: (name) => ask("join", { name }),
    trial: (listener) => ask("trial", { listener }),
    sound: async (id) => copy(await ask("sound", { id })),
    vote: (listener, trial, body) => ask("vote", { listener, trial, ...body }),
  };
}

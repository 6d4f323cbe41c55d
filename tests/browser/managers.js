// A kernel for a widget manager in a plain page: what @jupyterlab/services gives it, over two functions of the test's.
// `toShell(message)` sends one on, `outbox()` gives those that came; buffers are base64 between the two.

const signal = () => ({ connect: () => true, disconnect: () => true });
const encoded = (view) => {
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
};
// As messages come: views into one larger buffer.
const decoded = (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const whole = new Uint8Array(bytes.length + 8);
  whole.set(bytes, 8);
  return new DataView(whole.buffer, 8);
};
let sent = 0;
const futures = {};
const comms = {};
const targets = {};

function send(type, content, buffers = [], metadata = {}) {
  const id = `page-${++sent}`;
  const future = { msg: { header: { msg_id: id } }, done: Promise.resolve() };
  futures[id] = future;
  toShell({ id, type, content, metadata, buffers: (buffers ?? []).map(encoded) });
  return future;
}

class KernelComm {
  constructor(targetName, commId) {
    Object.assign(this, { targetName, commId, isDisposed: false });
    comms[commId] = this;
  }
  open = (data, metadata, buffers) =>
    send("comm_open", { comm_id: this.commId, target_name: this.targetName, data: data ?? {} }, buffers, metadata ?? {});
  send = (data, metadata, buffers) => send("comm_msg", { comm_id: this.commId, data }, buffers, metadata ?? {});
  close = (data, metadata, buffers) => {
    delete comms[this.commId];
    return send("comm_close", { comm_id: this.commId, data: data ?? {} }, buffers, metadata ?? {});
  };
  dispose() {}
}

const signals = ["statusChanged", "connectionStatusChanged", "iopubMessage", "unhandledMessage", "anyMessage", "disposed"];
const kernel = {
  id: "kernel", name: "python3", username: "reader", clientId: "page", status: "idle", connectionStatus: "connected",
  handleComms: true, isDisposed: false, ...Object.fromEntries(signals.map((name) => [name, signal()])),
  registerCommTarget: (name, opened) => (targets[name] = opened),
  removeCommTarget: (name) => delete targets[name],
  createComm: (target, id = `page-comm-${++sent}`) => new KernelComm(target, id),
  hasComm: (id) => id in comms,
  requestCommInfo: async () => ({ content: { status: "ok", comms: {} } }),
};

/** The manager of VS Code's notebooks, as its extension starts it. */
async function ofVSCode(target) {
  (await import("/vscode.js")).activate();
  vscIPyWidgets8.load();
  const scripts = {
    widgetsRegisteredInRequireJs: new Set(), successHandler() {}, errorHandler() {},
    // The extension finds a widget's script in the kernel's environment.
    loadWidgetScript: async () => requirejs.config({ paths: { anywidget: "/anywidget" } }),
  };
  return new vscIPyWidgets.WidgetManager(kernel, target, scripts, () => {}, {});
}

/** The manager for pages outside Jupyter, with comms, which is how Colab's is made. */
async function ofPage() {
  const { HTMLManager } = await new Promise((done) => requirejs(["@jupyter-widgets/html-manager"], done));
  const wrapped = (comm) => ({
    comm_id: comm.commId, target_name: comm.targetName,
    open: (data, callbacks, metadata, buffers) => hook(comm.open(data, metadata, buffers), callbacks),
    send: (data, callbacks, metadata, buffers) => hook(comm.send(data, metadata, buffers), callbacks),
    close: (data, callbacks, metadata, buffers) => hook(comm.close(data, metadata, buffers), callbacks),
    on_msg: (got) => (comm.onMsg = got), on_close: (got) => (comm.onClose = got),
  });
  const hook = (future, callbacks) => {
    future.onIOPub = ({ header, ...rest }) => header.msg_type === "status" && callbacks?.iopub?.status?.({ header, ...rest });
    return future.msg.header.msg_id;
  };
  class Manager extends HTMLManager {
    async _create_comm(target, id, data, metadata, buffers) {
      const comm = kernel.createComm(target, id);
      if (data || metadata) comm.open(data, metadata, buffers);
      return wrapped(comm);
    }
    async _get_comm_info() {
      return {};
    }
  }
  requirejs.config({ paths: { anywidget: "/anywidget" } });
  const manager = new Manager({ loader: (name) => new Promise((done, failed) => requirejs([name], done, failed)) });
  kernel.registerCommTarget("jupyter.widget", (comm, message) => manager.handle_comm_open(wrapped(comm), message));
  return manager;
}

async function start(host) {
  const manager = host === "vscode" ? await ofVSCode(document.querySelector("#widgets")) : await ofPage();
  const cells = {};
  const shown = {};
  async function show({ content: { data, transient } }, into) {
    const view = data["application/vnd.jupyter.widget-view+json"];
    if (!view) return void (into.innerHTML = data["text/html"] ?? data["text/plain"]);
    const model = await manager.get_model(view.model_id);
    const lived = await manager.create_view(model, {});
    await (host === "vscode" ? manager.display_view({}, lived, { node: into }) : manager.display_view(lived, into));
  }
  async function output(message) {
    const { display_id } = message.content.transient ?? {};
    if (message.header.msg_type === "update_display_data") return void (await show(message, shown[display_id]));
    const cell = (cells[message.parent_header.msg_id] ??= document.querySelector("#cells").appendChild(
      Object.assign(document.createElement("div"), { className: "cell_container" }),
    ));
    const into = cell.appendChild(Object.assign(document.createElement("div"), { className: "output_container" }));
    const widget = "application/vnd.jupyter.widget-view+json" in message.content.data;
    if (widget && host === "vscode") into.classList.add("cell-output-ipywidget-background");
    if (display_id) shown[display_id] = into;
    await show(message, into);
  }
  async function received(message) {
    const { header: { msg_type: type }, parent_header: parent, content } = message;
    message.buffers = message.buffers.map(decoded);
    if (type === "comm_open") await targets[content.target_name]?.(new KernelComm(content.target_name, content.comm_id), message);
    else if (type === "comm_msg") await comms[content.comm_id]?.onMsg?.(message);
    else if (type === "comm_close") comms[content.comm_id]?.onClose?.(message);
    else if (/display_data|execute_result/.test(type)) await output(message);
    else if (type === "error") throw new Error(content.evalue);
    futures[parent?.msg_id]?.onIOPub?.(message);
  }
  let chain = Promise.resolve();
  setInterval(async () => {
    for (const message of await outbox()) chain = chain.then(() => received(message));
  }, 20);
  globalThis.run = (code) => void send("execute_request", { code, silent: false, store_history: false, user_expressions: {} });
}

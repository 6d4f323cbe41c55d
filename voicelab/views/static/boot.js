// The script of every widget: it takes the others from the shared model `scripts`, once per page; loader.js has the rest.
const loaders = (globalThis[Symbol.for("voicelab.scripts")] ??= new Map());
async function scripts(model) {
  const id = model.get("scripts").slice(10); // after IPY_MODEL_
  // A page that is opened again creates models in any order.
  for (let attempt = 0; attempt < 20; attempt++) {
    try {
      const { attributes, comm_live: live } = await model.widget_manager.get_model(id);
      return { ...attributes, live };
    } catch {
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  // The page came after the model.
  return new Promise((done) => {
    model.on("msg:custom", (message) => message.kind === "scripts" && done({ ...message, live: true }));
    model.send({ kind: "scripts" });
  });
}
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const files = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const url = URL.createObjectURL(new Blob([files["loader.js"]], { type: "text/javascript" }));
  return new (await import(url)).Loader(files);
}
export default () => {
  let widget;
  return {
    // Neither waits: a manager may handle no message until they have returned.
    initialize: ({ model }) => {
      widget = scripts(model).then(async ({ packed, digest, live }) => {
        if (!loaders.has(digest)) loaders.set(digest, unpack(packed));
        return (await loaders.get(digest)).load(model, live);
      });
      return () => widget.then(({ close }) => close?.());
    },
    render: (context) => {
      const shown = widget.then(({ show }) => show(context));
      return () => shown.then((done) => done?.());
    },
  };
};

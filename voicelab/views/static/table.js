// A table: sorted by a click on a heading, filtered by words, copied for a spreadsheet, downloaded as CSV.

import { copier, download, element, followTheme, guard } from "./dom.js";

const SHOWN = 200; // rows on the page; a copy and a file have all

class Table {
  constructor(model, el) {
    Object.assign(this, { model, order: null, down: false });
    this.words = element("input", { type: "search", placeholder: "words" }, { "aria-label": "Filter the rows" });
    this.words.oninput = () => this.show();
    const filter = element("label", { className: "voicelab-pair" }, {}, "Filter", this.words);
    const copy = copier("Copy the rows for a spreadsheet", () => this.text("\t"));
    const file = element("button", { type: "button" }, {}, "Download CSV");
    file.onclick = () => download(new Blob([this.text(",")], { type: "text/csv" }), "takes.csv");
    this.count = element("span", { className: "voicelab-soft" }, { role: "status" });
    const tools = element("div", { className: "voicelab-table-tools" }, {}, filter, copy, file, this.count);
    this.heads = element("tr");
    this.body = element("tbody");
    const table = element("table", {}, {}, element("thead", {}, {}, this.heads), this.body);
    const scroll = element("div", { className: "voicelab-scroll" }, { tabindex: "0" }, table);
    el.append(element("div", { className: "voicelab-table" }, { role: "group", "aria-label": "Table" }, tools, scroll));
    this.columns = model.get("columns");
    for (const [place, { title, number }] of this.columns.entries()) {
      const button = element("button", { type: "button", onclick: () => this.sort(place) }, {}, title);
      this.heads.append(element("th", { className: number ? "voicelab-number" : "" }, { scope: "col" }, button));
    }
    this.show();
  }

  sort(place) {
    this.down = this.order === place && !this.down;
    this.order = place;
    this.show();
  }

  format(value, { number, decimals }) {
    if (value === null) return "–";
    return number && typeof value === "number" ? value.toFixed(decimals) : value;
  }

  /** The rows that match the words, in order; empty cells are last. */
  get rows() {
    const words = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { columns, order, down } = this;
    const text = (row) => row.map((value, place) => this.format(value, columns[place])).join(" ").toLowerCase();
    const rows = this.model.get("rows").filter((row) => words.every((word) => text(row).includes(word)));
    if (order === null) return rows;
    const key = columns[order].number ? Number : (value) => value;
    return rows.sort(([...first], [...second]) => {
      const [one, other] = [first[order], second[order]];
      if (one === null || other === null) return (one === null) - (other === null);
      const difference = columns[order].number ? key(one) - key(other) : one.localeCompare(other, undefined, { numeric: true });
      return down ? -difference : difference;
    });
  }

  text(separator) {
    const quoted = (value) => {
      const text = value === null ? "" : String(value);
      return separator === "," && /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text.replaceAll(separator === "," ? "\0" : "\t", " ");
    };
    const lines = [this.columns.map(({ title }) => title), ...this.rows];
    return lines.map((line) => `${line.map(quoted).join(separator)}\n`).join("");
  }

  show() {
    for (const [place, head] of [...this.heads.children].entries()) {
      if (place === this.order) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const { rows } = this;
    const cell = (value, place) => {
      const text = this.format(value, this.columns[place]);
      return element("td", { className: this.columns[place].number ? "voicelab-number" : "", title: text }, {}, text);
    };
    this.body.replaceChildren(...rows.slice(0, SHOWN).map((row) => element("tr", {}, {}, ...row.map(cell))));
    const all = this.model.get("rows").length;
    const counts = [rows.length < all && `${rows.length} of ${all} rows`, rows.length === all && `${all} rows`];
    const limit = rows.length > SHOWN && `the first ${SHOWN} rows are shown; a copy and the CSV file have all rows`;
    this.count.textContent = `${[...counts, limit].filter(Boolean).join(", ")}. ${this.model.get("note")}.`;
  }
}

export default {
  render({ model, el }) {
    followTheme(el);
    guard(el);
    new Table(model, el);
  },
};

// Lane of labeled regions: [label, start, end] in seconds, synchronized with the kernel.

import { element } from "./dom.js";

const REGION_ROW = 22; // pixels

export class RegionLane {
  /** `repeat([first, last])` loops a region, `change(regions)` stores changed regions. */
  constructor(repeat, change) {
    Object.assign(this, { repeat, change, regions: null, items: [] });
    this.root = element("div", { className: "voicelab-regions" }, { role: "group", "aria-label": "Regions" });
  }

  set(regions) {
    if (this.regions === regions) return;
    // The kernel echoes changes; keep a label being typed.
    if (JSON.stringify(this.regions) === JSON.stringify(regions)) return void (this.regions = regions);
    Object.assign(this, { regions, drawn: null });
    this.items = regions.map((region, place) => this.item(region, place));
    this.rows = stacked(regions);
    this.root.replaceChildren(...this.items);
    this.root.hidden = !regions.length;
    this.root.style.height = `${REGION_ROW * (1 + Math.max(0, ...this.rows))}px`;
  }

  item([label, start, end], place) {
    const title = `${label}, ${start.toFixed(3)} to ${end.toFixed(3)} s: click loops, double click or F2 renames, Delete removes`;
    const item = element("button", { type: "button", title, textContent: label });
    item.onclick = () => this.repeat([start, end]);
    item.ondblclick = () => this.rename(item, place);
    item.onkeydown = (event) => {
      const does = { F2: () => this.rename(item, place), Delete: () => this.put(place), Backspace: () => this.put(place) };
      if (!does[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      does[event.key]();
    };
    return item;
  }

  /** Replace a region; without a replacement remove it. */
  put(place, ...region) {
    this.change(this.regions.toSpliced(place, 1, ...region));
  }

  /** Edit a label in place; an empty label removes the region. */
  rename(item, place) {
    const [label, start, end] = this.regions[place];
    const field = element("input", { value: label, className: "voicelab-label" }, { "aria-label": `Label of ${label}` });
    field.style.cssText = `left:${item.style.left};top:${item.style.top}`;
    const keep = (text) => {
      field.onblur = null;
      if (text === label) field.remove();
      else this.put(place, ...(text ? [[text, start, end]] : []));
    };
    field.onblur = () => keep(field.value.trim());
    field.onkeydown = (event) => {
      if (event.key === "Enter") keep(field.value.trim());
      if (event.key === "Escape") keep(label);
    };
    this.root.append(field);
    field.focus();
    field.select();
  }

  /** Lay out the regions for a view of `span` seconds from `first`. */
  draw(first, span) {
    const width = this.root.clientWidth;
    const drawn = `${first} ${span} ${width}`;
    if (!width || drawn === this.drawn) return;
    this.drawn = drawn;
    this.items.forEach((item, n) => {
      const [left, right] = this.regions[n].slice(1).map((seconds) => ((seconds - first) / span) * width);
      item.hidden = right < 0 || left > width;
      // A region that starts before the view keeps its label visible.
      const seen = Math.max(left, 0);
      const style = { left: `${seen}px`, width: `${Math.max(Math.min(right, width) - seen, 12)}px` };
      Object.assign(item.style, style, { top: `${this.rows[n] * REGION_ROW}px` });
    });
  }
}

/** Return the row of every region; overlapping regions are stacked. */
function stacked(regions) {
  const ends = [];
  const rows = [];
  for (const place of [...regions.keys()].sort((a, b) => regions[a][1] - regions[b][1])) {
    const [, start, end] = regions[place];
    let row = ends.findIndex((last) => last <= start);
    if (row < 0) row = ends.length;
    ends[row] = end;
    rows[place] = row;
  }
  return rows;
}

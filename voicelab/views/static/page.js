// Sort a page's table by a click on a heading.
// Numerically if both cells are numbers; empty cells are last in both directions.
for (const [column, head] of document.querySelectorAll("th").entries()) {
  const button = head.querySelector("button");
  if (button) button.onclick = () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of document.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = document.querySelector("tbody");
    const key = (row) => row.cells[column]?.dataset.value ?? "";
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
  };
}

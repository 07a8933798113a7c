// Tables that sort by a click on a heading and filter by a text.

// Orders two cells: numbers where both are, text otherwise; empty cells last either way.
export function compared(a, b, direction) {
  if (a === b) return 0;
  if (a === "") return 1;
  if (b === "") return -1;
  const [x, y] = [Number(a), Number(b)];
  const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  return order * direction;
}

// Whether a row's text holds every word that is asked for.
export function holds(text, query) {
  const low = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

export function attachTable(table, filter, count) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    const down = head.getAttribute("aria-sort") === "descending";
    const direction = down ? 1 : -1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    rows.sort((a, b) => compared(value(a, head.cellIndex), value(b, head.cellIndex), direction));
    body.append(...rows);
  });

  filter?.addEventListener("input", () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !holds(row.textContent, filter.value.trim());
      if (!row.hidden) shown += 1;
    }
    if (count) count.textContent = `${shown} of ${rows.length}`;
  });
}

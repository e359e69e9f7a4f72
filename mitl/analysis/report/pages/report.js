// Headers become buttons that sort their table; without script the tables stand in their own order.
for (const table of document.querySelectorAll("table.sortable")) {
  const head = table.tHead.rows[table.tHead.rows.length - 1];
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    const given = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(given);
    return given !== "" && !Number.isNaN(number) ? number : given;
  };
  [...head.cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const falling = header.getAttribute("aria-sort") === "descending";
      const sign = falling ? 1 : -1;
      for (const other of head.cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", falling ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        if (typeof x === "number" && typeof y === "number") return sign * (x - y);
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        return sign * x.localeCompare(y);
      });
      body.append(...rows);
    });
  });
}

// The page is whole without this: it sorts tables and marks the section in view.
const columns = (table) => [...table.tHead.rows[table.tHead.rows.length - 1].cells];

const SECONDS = { s: 1, min: 60, h: 3600, "": 1 };

// 1,234 · −$1,234.50 · ×3.6 · < 0.1 % · 4 min 12 s; anything else is words.
const numberIn = (text) => {
  const plain = text.replaceAll("−", "-").replace(/,(?=\d{3})/g, "").replace(/^[<>×≈]\s*/, "").replace(/^(-?)\$/, "$1").replace(/\s*%$/, "");
  const time = plain.match(/^(\d+) (min|h) (\d+) (s|min)$/) ?? plain.match(/^(\d+(?:\.\d+)?) (s|min|h)$/);
  if (time) return Number(time[1]) * SECONDS[time[2]] + Number(time[3] ?? 0) * SECONDS[time[4] ?? ""];
  return plain === "" ? NaN : Number(plain);
};

const valueOf = (row, column) => {
  const cell = row.cells[column];
  const given = cell.dataset.value ?? cell.textContent.trim();
  if (given === "" || given === "–") return null;
  const number = numberIn(given);
  return Number.isNaN(number) ? given : number;
};

// Numbers before words; what is missing stays below, whichever way round.
const compare = (x, y, sign) => {
  if (x === null || y === null) return (x === null) - (y === null);
  if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
  return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
};

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  columns(table).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    const words = original.some((row) => typeof valueOf(row, column) === "string");
    const turns = words ? ["ascending", "descending", null] : ["descending", "ascending", null];
    button.addEventListener("click", () => {
      const now = header.getAttribute("aria-sort");
      const next = turns[(turns.indexOf(now) + 1) % turns.length];
      for (const other of columns(table)) other.removeAttribute("aria-sort");
      if (next) header.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = next
        ? [...original].sort((a, b) => compare(valueOf(a, column), valueOf(b, column), sign))
        : original;
      body.append(...rows);
    });
  });
}

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const inView = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) inView[isIntersecting ? "add" : "delete"](target.id);
  const current = [...links.keys()].find((id) => inView.has(id));
  for (const [id, link] of links) {
    if (id === current) link.setAttribute("aria-current", "location");
    else link.removeAttribute("aria-current");
  }
}, { rootMargin: "-15% 0px -60% 0px" });
for (const section of document.querySelectorAll("main > section")) watcher.observe(section);

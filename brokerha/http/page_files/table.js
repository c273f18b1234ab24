// Tables that are filled repeatedly: rows keep their elements, and a cell changes only with its text, so that the focus, a selection
// and the place of a screen reader stay. All data are inserted as text, never as markup.

// With a card for each row, a page has fewer rows.
export const isNarrow = matchMedia("(max-width: 64rem)").matches;

export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 1 });
}

export function bytes(value) {
  if (!value) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${number(value / 1024 ** power)} ${units[power]}`;
}

// Microseconds since 1970.
export function utc(value, digits = 19) {
  return value ? new Date(value / 1000).toISOString().replace("T", " ").slice(0, digits) : "";
}

// A column is {title, of(row), kind: "number" | "code" | undefined}; `of` gives a text, or parts [{text, tag, name, kind, title, attributes}].
export class Table {
  constructor(id, columns) {
    this.table = document.getElementById(id);
    this.columns = columns;
    this.rows = new Map();
    this.head = element("tr", undefined, { role: "row" });
    for (const column of columns) {
      const cell = element("th", column.title, { scope: "col", role: "columnheader" });
      if (column.kind === "number") cell.className = "number";
      this.head.append(cell);
    }
    const top = element("thead", undefined, { role: "rowgroup" });
    top.append(this.head);
    this.body = element("tbody", undefined, { role: "rowgroup" });
    this.table.setAttribute("role", "table");
    this.table.replaceChildren(top, this.body);
  }

  fill(rows, keyOf) {
    const wanted = rows.map((row) => keyOf(row));
    for (const [key, made] of this.rows) {
      if (!wanted.includes(key)) {
        made.remove();
        this.rows.delete(key);
      }
    }
    rows.forEach((row, place) => {
      let made = this.rows.get(wanted[place]);
      if (!made) {
        made = element("tr", undefined, { role: "row" });
        this.columns.forEach((column, at) => made.append(this.cell(column, at === 0)));
        this.rows.set(wanted[place], made);
      }
      if (this.body.children[place] !== made) this.body.insertBefore(made, this.body.children[place] ?? null);
      this.columns.forEach((column, at) => show(made.children[at], column.of(row)));
    });
    // Hides empty columns.
    this.columns.forEach((column, at) => {
      const isEmpty = rows.length > 0 && [...this.body.children].every((row) => row.children[at].classList.contains("empty"));
      for (const row of [this.head, ...this.body.children]) row.children[at].classList.toggle("unused", isEmpty);
    });
    this.table.hidden = false;
  }

  cell(column, isHead) {
    const attributes = isHead ? { scope: "row", role: "rowheader" } : { role: "cell" };
    const cell = element(isHead ? "th" : "td", undefined, { ...attributes, "data-label": column.title });
    if (column.kind) cell.className = column.kind;
    return cell;
  }
}

function show(cell, content) {
  const parts = (Array.isArray(content) ? content : [{ text: content }]).filter((part) => part.text !== "" && part.text !== undefined);
  const written = JSON.stringify(parts);
  if (cell.written === written) return;
  cell.written = written;
  cell.classList.toggle("empty", parts.length === 0);
  cell.replaceChildren(
    ...parts.map((part) => {
      const made = element(part.tag ?? "span", part.text, part.attributes);
      if (part.name) made.className = part.name;
      if (part.kind) made.dataset.kind = part.kind;
      if (part.title) made.title = part.title;
      return made;
    }),
  );
}

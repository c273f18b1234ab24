// Splits: the strategy of each master, how often its log went back, and the outcome of each transaction that it gave up.

import { Table, isNarrow, number, setText, utc } from "./table.js";

const PAGE = isNarrow ? 10 : 50;
const by = (id) => document.getElementById(id);
const counts = (effects) => Object.entries(effects ?? {}).filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`).join(", ");
const outcome = (value, reason) => [{ text: value ?? "not known", name: "badge", kind: { applied: "good", rejected: "warn" }[value] ?? "none" }, { text: reason ?? "", tag: "small" }];

export class Splits {
  constructor(ask) {
    this.ask = ask;
    this.known = null;
    this.shown = null;
    this.rows = [];
    this.masters = new Table("strategies-table", [
      { title: "Master", of: (row) => row.id },
      { title: "Strategy", of: (row) => row.split_recovery ?? "not known" },
      { title: "Comes from", of: (row) => ({ file: "its file", epoch: "an epoch" })[row.split_recovery_from] ?? "" },
      { title: "Splits", of: (row) => number(row.splits), kind: "number" },
      { title: "Given up", of: (row) => number(row.given_up), kind: "number" },
      { title: "The last one", of: (row) => row.last_split || (row.splits === 0 ? "none since its start" : "") },
    ]);
    this.book = new Table("book-table", [
      { title: "Split", of: (row) => String(row.number) },
      { title: "Last write (UTC)", of: (row) => utc(row.last_write) },
      { title: "Epoch", of: (row) => number(row.epoch), kind: "number" },
      { title: "Back to LSN", of: (row) => number(row.lsn), kind: "number" },
      { title: "Given up", of: (row) => number(row.total), kind: "number" },
      { title: "Content", of: (row) => (row.keeps_content ? "kept as it was" : "made anew") },
      { title: "What became of them", of: (row) => counts(row.effects) || (row.total ? "not counted" : "nothing to tell") },
      { title: "Transactions", of: (row) => (row.held ? [shower(row)] : "none") },
    ]);
    this.entries = new Table("given-up-table", [
      { title: "LSN then", of: (row) => number(row.lsn), kind: "number" },
      { title: "Outcome then", of: (row) => outcome(row.outcome) },
      { title: "LSN now", of: (row) => number(row.new_lsn), kind: "number" },
      { title: "Outcome now", of: (row) => outcome(row.new_outcome, row.reason) },
      { title: "Effect", of: (row) => row.effect ?? "" },
      { title: "Origin", of: (row) => row.origin },
      { title: "Transaction", of: (row) => row.txid, kind: "code" },
    ]);
    for (const { table } of [this.book, this.entries]) table.hidden = true;
    this.book.table.addEventListener("click", (event) => {
      const pressed = event.target.closest("button[data-split]");
      if (pressed) this.open(Number(pressed.dataset.split));
    });
    by("given-up-more").addEventListener("click", () => this.more());
    by("given-up-close").addEventListener("click", () => this.close());
  }

  // Takes the status; reads the split book again after another split.
  fill(masters, { node, role }) {
    const telling = masters.filter((row) => row.split_recovery);
    by("splits").hidden = by("to-splits").hidden = telling.length === 0;
    if (!telling.length) return;
    this.masters.fill(masters, (row) => row.id);
    const strategies = [...new Set(telling.map((row) => row.split_recovery))];
    const note = by("splits-note");
    const isOne = strategies.length === 1;
    setText(note, isOne ? `All masters that answer follow ${strategies[0]}. Numbers are since the start of each one.` : `Masters follow DIFFERENT strategies, ${strategies.join(" and ")}: brokerha split-recovery MODE makes them one.`);
    note.className = isOne ? "sub" : "notice";
    by("book").hidden = role !== "master";
    const splits = telling.map((row) => row.splits ?? "").join();
    if (role === "master" && splits !== this.known) {
      this.known = splits;
      this.read(node);
    }
  }

  async read(node) {
    try {
      const answer = await this.ask("cluster/splits");
      this.book.fill(answer.splits, (row) => row.number);
      this.book.table.hidden = answer.splits.length === 0;
      const others = "Each master has a book of its own: open the page of another one for what it gave up.";
      setText(by("book-note"), answer.splits.length ? `The newest first, as far as ${answer.master} remembers. ${others}` : `None that ${answer.master} remembers. ${others}`);
    } catch (error) {
      this.known = null;
      setText(by("book-note"), `The book of ${node} cannot be read: ${error.message}`);
    }
  }

  // Shows one split with its transactions; the heading takes the focus, for keys and screen readers.
  async open(split) {
    this.shown = { split, next: 0 };
    this.rows = [];
    this.entries.table.hidden = true;
    by("given-up").hidden = false;
    setText(by("given-up-title"), `What was given up in split ${split}`);
    by("given-up-json").href = `cluster/splits/${split}`;
    by("given-up-title").focus();
    await this.more();
  }

  async more() {
    const asked = this.shown;
    if (!asked || asked.next === null) return;
    try {
      const answer = await this.ask(`cluster/splits/${asked.split}?from=${asked.next}&limit=${PAGE}`);
      if (asked !== this.shown) return;
      asked.next = answer.next;
      this.rows = [...this.rows, ...answer.entries];
      this.entries.fill(this.rows, (row) => row.lsn);
      setText(by("given-up-note"), `${number(this.rows.length)} of ${number(answer.held)} that are listed${answer.held < answer.total ? `, of ${number(answer.total)} that were given up` : ""}.`);
    } catch (error) {
      setText(by("given-up-note"), `The transactions cannot be read: ${error.message}`);
    }
    by("given-up-more").hidden = asked.next === null;
  }

  close() {
    const button = this.book.table.querySelector(`button[data-split="${this.shown?.split}"]`);
    this.shown = null;
    by("given-up").hidden = true;
    (button ?? by("splits")).focus();
  }
}

function shower(row) {
  return { tag: "button", text: `Show ${number(row.held)}`, attributes: { type: "button", "data-split": row.number, "aria-label": `Show the ${row.held} transactions of split ${row.number}`, "aria-controls": "given-up" } };
}

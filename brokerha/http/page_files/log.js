// The log browser: pages of /cluster/log, forward and back.

import { Table, isNarrow, number, setText, utc } from "./table.js";

const PAGE = isNarrow ? 8 : 20;

export class LogBrowser {
  constructor(ask) {
    this.ask = ask;
    this.newest = 0;
    this.first = 0;
    this.table = new Table("log-table", [
      { title: "LSN", of: (row) => String(row.lsn), kind: "number" },
      { title: "Outcome", of: (row) => [{ text: row.outcome ?? "waits", name: "badge", kind: { applied: "good", rejected: "warn" }[row.outcome] ?? "none" }, { text: row.reason ?? "", tag: "small" }] },
      { title: "Kind", of: (row) => row.kind ?? "" },
      { title: "Operations", of: (row) => number(row.operations), kind: "number" },
      { title: "Origin", of: (row) => row.origin ?? "" },
      { title: "Time (UTC)", of: (row) => utc(row.timestamp, 23) },
      { title: "Transaction", of: (row) => row.txid, kind: "code" },
      { title: "Digest of the effect", of: (row) => row.effect_digest ?? "", kind: "code" },
    ]);
    this.table.table.hidden = true;
    this.note = document.getElementById("log-note");
    this.from = document.getElementById("log-from");
    this.older = document.getElementById("log-older");
    this.newer = document.getElementById("log-newer");
    document.getElementById("log-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.show(Number(this.from.value));
    });
    this.older.addEventListener("click", () => this.show(this.first - PAGE));
    this.newer.addEventListener("click", () => this.show(this.first + PAGE));
    document.getElementById("log-newest").addEventListener("click", () => this.show(this.newest - PAGE + 1));
  }

  // Takes the end of the order from the status; the first time shows the newest page.
  know(newest) {
    const isFirst = this.newest === 0 && newest > 0;
    this.newest = newest;
    if (isFirst) this.show(newest - PAGE + 1);
    this.buttons();
  }

  async show(first) {
    this.first = Math.max(1, Math.floor(first) || 1);
    this.from.value = String(this.first);
    const asked = this.first;
    try {
      const rows = await this.ask(`cluster/log?from=${asked}&to=${asked + PAGE - 1}`);
      if (asked !== this.first) return;
      this.table.fill(rows, (row) => row.lsn);
      this.table.table.hidden = rows.length === 0;
      setText(this.note, rows.length ? `Transactions ${rows[0].lsn} to ${rows[rows.length - 1].lsn} of ${this.newest}.` : `There is nothing from ${asked} on, or it is not held any more.`);
    } catch (error) {
      setText(this.note, `The log cannot be read: ${error.message}`);
    }
    this.buttons();
  }

  buttons() {
    this.older.disabled = this.first <= 1;
    this.newer.disabled = this.first + PAGE > this.newest;
  }
}

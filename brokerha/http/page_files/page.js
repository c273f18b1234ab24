// The status page: asks its node every few seconds, and shows the answers. It changes nothing.

import { Charts } from "./chart.js";
import { LogBrowser } from "./log.js";
import { Settings } from "./settings.js";
import { Splits } from "./splits.js";
import { Table, bytes, element, number, setText, utc } from "./table.js";

const LIVE_MS = 2000, RATES_MS = 10_000, SETTINGS_MS = 10_000, ANSWER_MS = 8000, SAMPLES = 361, CHANGES = 50;
const KINDS = { ok: "good", degraded: "warn", "action-needed": "bad" };
const by = (id) => document.getElementById(id);

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok) {
    const told = await answer.text();
    let text = told.trim();
    try { text = JSON.parse(told).text ?? text; } catch { /* It was text. */ }
    throw Object.assign(new Error(text || `status ${answer.status}`), { status: answer.status });
  }
  return answer.json();
}

// ---- words

function state(row) {
  return [
    { text: row.state, name: "badge", kind: row.kind },
    { text: row.reason ?? "", tag: "small" },
    { text: row.action ?? "", tag: "small" },
  ];
}

// Compares copies at one LSN, of all sites.
function compared(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!row.fingerprint || row.applied_lsn === null) continue;
    const same = found.get(row.applied_lsn) ?? new Map();
    same.set(row.fingerprint, (same.get(row.fingerprint) ?? 0) + 1);
    found.set(row.applied_lsn, same);
  }
  return found;
}

function fingerprint(row, found) {
  if (!row.fingerprint) return [];
  const same = found.get(row.applied_lsn) ?? new Map();
  const copies = [...same.values()].reduce((sum, count) => sum + count, 0);
  let mark = { text: "– no other node at this LSN", kind: "none" };
  if (same.size > 1) mark = { text: "≠ DIFFERENT at this LSN", kind: "bad" };
  else if (copies > 1) mark = { text: `= equal at ${copies} nodes`, kind: "good" };
  return [{ text: row.fingerprint.slice(0, 16), name: "code", title: row.fingerprint }, { ...mark, tag: "small", name: "mark" }];
}

const yes = (value) => (value === null || value === undefined ? "" : value ? "yes" : "no");
const names = (value) => (value ?? []).join(", ");
const seen = (row) => (row.seen_s === null || row.seen_s === undefined ? "" : `${number(row.seen_s)} s ago`);

// ---- tables

let found = new Map();
const tables = {
  masters: new Table("masters-table", [
    { title: "Master", of: (row) => row.id },
    { title: "State", of: state },
    { title: "Received", of: (row) => number(row.received_lsn), kind: "number" },
    { title: "Applied", of: (row) => number(row.applied_lsn), kind: "number" },
    { title: "Lag", of: (row) => number(row.lag_entries), kind: "number" },
    { title: "Lag, s", of: (row) => number(row.lag_s), kind: "number" },
    { title: "Stale, s", of: (row) => number(row.stale_s), kind: "number" },
    { title: "Incoming", of: (row) => number(row.incoming), kind: "number" },
    { title: "In doubt", of: (row) => number(row.in_doubt), kind: "number" },
    { title: "Primary", of: (row) => (row.primary && row.primary !== row.id ? `${row.primary}, view ${row.view}` : "") },
    { title: "Fingerprint", of: (row) => fingerprint(row, found) },
  ]),
  workers: new Table("workers-table", [
    { title: "Worker", of: (row) => row.id },
    { title: "Master", of: (row) => row.master ?? "" },
    { title: "Standing", of: state },
    { title: "Applied", of: (row) => number(row.applied_lsn), kind: "number" },
    { title: "Lag", of: (row) => number(row.lag_entries), kind: "number" },
    { title: "Lag, s", of: (row) => number(row.lag_s), kind: "number" },
    { title: "Items", of: (row) => number(row.items), kind: "number" },
    { title: "Executes", of: (row) => yes(row.probe) },
    { title: "Read", of: (row) => yes(row.readable) },
    { title: "Free", of: (row) => bytes(row.free_bytes), kind: "number" },
    { title: "Heard", of: seen, kind: "number" },
    { title: "Fingerprint", of: (row) => fingerprint(row, found) },
  ]),
  backups: new Table("backups-table", [
    { title: "Process", of: (row) => row.id },
    { title: "Master", of: (row) => row.master ?? "" },
    { title: "State", of: state },
    { title: "Records behind", of: (row) => number(row.lag_entries), kind: "number" },
    { title: "Primary", of: (row) => row.primary ?? "" },
    { title: "View", of: (row) => number(row.view), kind: "number" },
  ]),
  epochs: new Table("epochs-table", [
    { title: "Master", of: (row) => row.id },
    { title: "Epoch", of: (row) => number(row.epoch), kind: "number" },
    { title: "Proposer", of: (row) => row.proposer ?? "" },
    { title: "Members", of: (row) => names(row.members) },
    { title: "Excluded", of: (row) => names(row.excluded) || (row.masters ? "none" : "") },
    { title: "All masters", of: (row) => names(row.masters) },
  ]),
  transactions: new Table("transactions-table", [
    { title: "Transaction", of: (row) => row.txid, kind: "code" },
    { title: "State", of: (row) => [{ text: row.state, name: "badge", kind: row.state === "open" ? "none" : "warn" }, { text: row.reason ?? "", tag: "small" }] },
    { title: "Named (xid)", of: (row) => row.xid ?? "", kind: "code" },
    { title: "Operations", of: (row) => number(row.operations), kind: "number" },
    { title: "Idle, s", of: (row) => number(row.idle_s), kind: "number" },
    { title: "Prepared (UTC)", of: (row) => utc(row.prepared_us) },
    { title: "Participants", of: (row) => names(row.participants) },
  ]),
};
tables.transactions.table.hidden = true;
const charts = new Charts("charts");
const log = new LogBrowser(ask);
const splits = new Splits(ask);
const settings = new Settings(ask);

// ---- changes, each shown once

const before = new Map();

function tell(text) {
  const list = by("changes-list");
  list.prepend(element("li", `${new Date().toLocaleTimeString("en-GB")} ${text}`));
  while (list.children.length > CHANGES) list.lastElementChild.remove();
  by("changes-none").hidden = true;
}

// A change between two healthy states is frequent, and not shown.
function compare(name, word, kind, reason) {
  const was = before.get(name);
  before.set(name, { word, kind });
  if (was === undefined || was.word === word || (was.kind === "good" && kind === "good")) return;
  tell(`${name}: ${was.word} → ${word}${reason ? ` (${reason})` : ""}`);
}

// ---- the status

function show(live) {
  const { status, transactions } = live;
  const rows = status.nodes;
  const masters = rows.filter((row) => row.role === "master");
  const workers = rows.filter((row) => row.role === "worker");
  const backups = rows.filter((row) => row.role === "backup");
  found = compared([...masters, ...workers]);
  setText(by("cluster"), status.cluster);
  setText(by("state"), status.state);
  by("state").dataset.kind = KINDS[status.state] ?? "bad";
  setText(by("from"), `${live.node} (${live.role})`);
  setText(by("epoch"), number(status.epoch));
  const newest = Math.max(0, ...rows.map((row) => row.received_lsn ?? 0));
  setText(by("lsn"), number(newest));
  document.title = `${status.cluster}: ${status.state}`;
  compare("cluster", status.state, KINDS[status.state]);
  for (const row of rows) compare(`${row.role} ${row.id}`, row.state, row.kind, row.reason);

  const needy = rows.filter((row) => row.kind !== "good");
  by("todo").hidden = needy.length === 0;
  const wanted = needy.map((row) => `${row.id} is ${row.state}${row.reason ? `: ${row.reason}` : ""}${row.action ? ` → ${row.action}` : ""}`);
  const list = by("todo-list");
  if (list.written !== JSON.stringify(wanted)) {
    list.written = JSON.stringify(wanted);
    list.replaceChildren(...wanted.map((text) => element("li", text)));
  }

  const key = (row) => `${row.role} ${row.id}`;
  tables.masters.fill(masters, key);
  tables.workers.fill(workers, key);
  tables.epochs.fill(masters, key);
  tables.backups.fill(backups, key);
  by("backups").hidden = backups.length === 0;
  const different = [...found].filter(([, same]) => same.size > 1).map(([lsn]) => lsn);
  const copies = by("copies");
  setText(copies, different.length ? `Copies DIFFER at LSN ${different.join(", ")}: brokerha verify --deep tells which is right.` : "All copies that are at one LSN are equal.");
  copies.className = different.length ? "notice" : "sub";

  showTransactions(transactions, live.transactions_note, live.transactions_count, live.node);
  log.know(newest);
  splits.fill(masters, live);
}

function showTransactions(rows, note, count, node) {
  const known = rows ?? [];
  tables.transactions.fill(known, (row) => row.txid);
  tables.transactions.table.hidden = known.length === 0;
  const more = count > known.length ? ` The first ${known.length} are shown.` : "";
  setText(by("transactions-note"), rows === null ? note : count ? `${number(count)} at ${node}.${more}` : `None at ${node}.`);
}

// ---- asking, one question at a time

let lastMs = 0;

function fresh() {
  const ageS = Math.round((Date.now() - lastMs) / 1000);
  setText(by("fresh"), lastMs === 0 ? "Asking…" : ageS <= 5 ? "Live" : `As of ${ageS} s ago`);
}

async function live() {
  const trouble = by("trouble");
  try {
    show(await ask("page/live"));
    lastMs = Date.now();
    if (!trouble.hidden) tell("this node answers again");
    trouble.hidden = true;
  } catch (error) {
    const text = `This node does not answer: ${error.message}. What is shown below is old. It is asked again and again.`;
    if (trouble.hidden) tell("this node does not answer");
    setText(trouble, text);
    trouble.hidden = false;
  }
  fresh();
}

let samples = [];

async function rates() {
  try {
    const after = samples.length ? samples[samples.length - 1][0] : 0;
    let answer = await ask(`page/rates?after=${after}`);
    // A restarted node counts from the beginning.
    if (answer.last < after) { samples = []; answer = await ask("page/rates?after=0"); }
    samples = [...samples, ...answer.samples].slice(-SAMPLES);
    setText(by("rates-note"), `One sample every ${answer.every_s} seconds, kept in memory by ${answer.master} since it was started.`);
    charts.draw({ ...answer, samples }, answer.now_ms);
  } catch (error) {
    setText(by("rates-note"), `No charts: ${error.message}`);
  }
}

// A hidden page asks nothing, and asks at once when it is visible again.
const wakers = new Set();
document.addEventListener("visibilitychange", () => { for (const wake of wakers) wake(); });

async function forever(work, everyMs) {
  for (;;) {
    if (document.visibilityState === "visible") await work();
    await new Promise((resume) => {
      const wake = () => { wakers.delete(wake); clearTimeout(timer); resume(); };
      const timer = setTimeout(wake, everyMs);
      wakers.add(wake);
    });
  }
}

setInterval(fresh, 1000);
forever(live, LIVE_MS);
forever(rates, RATES_MS);
forever(() => settings.read(), SETTINGS_MS);

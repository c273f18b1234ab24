// Run-time settings with their last authors, for users who may change them. They are changed by brokerha settings, or over HTTP.

import { Table, setText, utc } from "./table.js";

const by = (id) => document.getElementById(id);

export class Settings {
  constructor(ask) {
    this.ask = ask;
    this.table = new Table("settings-table", [
      { title: "Setting", of: (row) => row.name, kind: "code" },
      { title: "Value", of: (row) => [{ text: row.value }, { text: row.value === row.in_force ? "" : `now ${row.in_force}`, tag: "small" }] },
      { title: "Counts", of: (row) => (row.live ? "at once" : "from the next start of a node") },
      { title: "Comes from", of: (row) => (row.source === "cluster" ? `the cluster; the file says ${row.file}` : "the file") },
      { title: "Set by", of: (row) => (row.at ? `${row.by || "nobody known"}${row.source === "file" ? ", taken back" : ""}` : "") },
      { title: "When (UTC)", of: (row) => utc(row.at) },
      { title: "From", of: (row) => row.from ?? "" },
    ]);
  }

  // Shows nothing to a user without the right, or of a node that does not know the settings.
  async read() {
    const places = [by("settings"), by("to-settings")];
    try {
      const answer = await this.ask("cluster/settings");
      const changed = answer.settings.filter((row) => row.at !== null);
      const others = answer.settings.filter((row) => row.at === null);
      this.table.fill([...changed, ...others], (row) => row.name);
      const note = by("settings-note");
      setText(note, answer.problem ? `NOT IN FORCE at ${answer.master}: ${answer.problem}` : `As ${answer.master} knows them as of LSN ${answer.lsn}. Those that were set come first. brokerha settings set NAME VALUE changes one.`);
      note.className = answer.problem ? "notice" : "sub";
      for (const each of places) each.hidden = false;
    } catch (error) {
      if (error.status !== undefined) for (const each of places) each.hidden = true;
    }
  }
}


"use strict";
const PERIOD = 2000;     // polling interval, in milliseconds
const PATIENCE = 10000;  // timeout of a request, in milliseconds
const PAGE = 100;
const MOST = 2000;       // rows on the page; older ones are removed

const at = (id) => document.getElementById(id);
const make = (tag, text, kind) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = shown(text);
  if (kind) element.className = kind;
  return element;
};
// Names come from the authors of pods: characters that could hide or reorder text are escaped.
const shown = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
  (character) => character === "\n" ? "\n" : `\\u{${character.codePointAt(0).toString(16)}}`);

let token = null;        // never stored
let newest = null;       // cursor after the newest decision
let older = null;        // cursor of the next older page
let filter = "";
let paused = false;
let heard = 0;           // time of the latest response
let trouble = "";
let timer = 0;
let round = 0;           // responses of earlier rounds are discarded
let looking = null;      // round of the poll in progress
let counted = 0;         // time of the latest states of pods

class Refused extends Error {}

async function ask(path) {
  const response = await fetch(path, {
    headers: { Authorization: `Bearer ${token}`, Accept: "application/json" },
    cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(PATIENCE),
  });
  if (response.ok) return response.json();
  const said = (await response.json().catch(() => ({}))).error ?? response.statusText;
  if (response.status === 401 || response.status === 403) throw new Refused(said);
  throw Object.assign(new Error(said), { status: response.status });
}

// --- filters

function instant(local) {
  const time = new Date(local);
  return isNaN(time) ? "" : time.toISOString();
}

function query() {
  const form = new FormData(at("filters"));
  const asked = new URLSearchParams();
  for (const key of ["decision", "namespace", "ticket", "webhook", "mode", "tier"]) {
    const value = String(form.get(key) ?? "").trim();
    if (value) asked.set(key, value);
  }
  const time = form.get("time");
  if (time === "between") {
    for (const key of ["since", "until"]) {
      if (form.get(key)) asked.set(key, instant(form.get(key)));
    }
  } else if (time) {
    asked.set("since", new Date(Date.now() - time * 60000).toISOString());
  }
  return asked.toString();
}

const url = (more) => {
  const asked = new URLSearchParams(filter);
  for (const [key, value] of Object.entries(more)) asked.set(key, value);
  return `/audit?${asked}`;
};

// --- polling

async function begin() {
  clearTimeout(timer);
  const mine = ++round;
  filter = query();
  try {
    const page = await ask(url({ limit: PAGE }));
    if (mine !== round) return;
    at("rows").replaceChildren(...page.decisions.flatMap(rows));
    newest = page.latest;
    older = page.next;
    answered(page.replica);
    await status();
  } catch (error) {
    if (mine !== round) return;
    failed(error);
  }
  tell();
  schedule();
}

async function look() {
  const mine = round;
  // Concurrent polls would add the same rows.
  if (looking === mine) return;
  looking = mine;
  try {
    await status();
    await pods();
    // Reads several pages if there are many new decisions.
    for (let more = !paused && newest !== null; more;) {
      const page = await ask(url({ order: "oldest", cursor: newest, limit: PAGE }));
      if (mine !== round) return;
      const fresh = page.decisions.reverse().flatMap(rows);
      if (page.missed) fresh.push(gap(page.missed));
      at("rows").prepend(...fresh);
      newest = page.next;
      more = page.decisions.length === PAGE;
      answered(page.replica);
    }
    if (mine !== round) return;
    if (newest === null) return begin();
  } catch (error) {
    if (mine !== round) return;
    if (error.status === 410) {
      newest = null;
      trouble = "";
      return begin();
    }
    failed(error);
  }
  looking = null;
  trim();
  tell();
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (token === null) return;
  timer = setTimeout(look, trouble ? 3 * PERIOD : document.hidden ? 5 * PERIOD : PERIOD);
}

function answered(replica) {
  heard = Date.now();
  trouble = "";
  at("replica").textContent = shown(replica);
  at("refused").textContent = "";
  at("login").hidden = true;
  at("main").hidden = at("session").hidden = false;
}

function failed(error) {
  if (error instanceof Refused) return lock(error.message);
  trouble = error.name === "TimeoutError" ? "no answer" : error.message;
  if (at("main").hidden) {
    token = null;
    at("refused").textContent = shown(`Failed to ask: ${trouble}`);
    at("token").focus();
  }
}

function lock(reason) {
  round++;
  clearTimeout(timer);
  token = newest = older = null;
  trouble = "";
  counted = 0;
  for (const emptied of ["rows", "facts", "running", "states"]) at(emptied).replaceChildren();
  at("drift").hidden = true;
  at("drift").querySelector("ul").replaceChildren();
  at("namespaces").replaceChildren();
  at("tiers").replaceChildren();
  at("replica").textContent = at("live").textContent = "";
  document.title = "Lucid decisions";
  at("main").hidden = at("session").hidden = true;
  at("login").hidden = false;
  at("token").value = "";
  at("refused").textContent = reason ? shown(reason) : "";
  at("token").focus();
}

// --- state of log and memory

async function status() {
  const mine = round;
  const now = await ask("/audit/status");
  if (mine !== round) return;
  answered(now.replica);
  const facts = [seal(now.log), drift(now.alerts),
    ["In memory", `${number(now.inMemory)} of ${number(now.decided)} decisions since the start`, ""]];
  const key = JSON.stringify(facts);
  if (at("facts").dataset.key === key && at("facts").childElementCount) return;
  at("facts").dataset.key = key;
  at("facts").replaceChildren(...facts.map(([name, value, state]) => {
    const fact = make("div");
    fact.dataset.state = state;
    fact.append(make("dt", name), make("dd", value));
    return fact;
  }));
}

const number = (value) => Number(value ?? 0).toLocaleString("en");

function seal(log) {
  if (!log) return ["Log", "none: decisions are in memory only", ""];
  const kept = `${number(log.size)} records`;
  if (log.failing) return ["Log", `FAILING: ${log.failing}`, "bad"];
  if (log.sealed === undefined || log.sealed === null) return ["Log", `${kept}, not sealed: no key`, "warn"];
  const cosigned = log.cosigned ? `, ${number(log.cosigned)} cosigned` : "";
  const behind = log.size - log.sealed;
  return behind > 0
    ? [`Log ${log.origin}`, `${kept}, ${number(behind)} of them not sealed yet${cosigned}`, ""]
    : [`Log ${log.origin}`, `${kept}, all sealed${cosigned}`, "good"];
}

function drift(alerts) {
  const section = at("drift");
  const key = JSON.stringify(alerts);
  if (section.dataset.key !== key) {
    section.dataset.key = key;
    section.querySelector("ul").replaceChildren(...alerts.map((alert) => {
      const item = make("li");
      const seq = alert.seq === undefined ? "" : `seq ${alert.seq}${alert.last === undefined ? "" : ` to ${alert.last}`}`;
      const where = [alert.log, seq, alert.auditID && `auditID ${alert.auditID}`].filter(Boolean).join(", ");
      item.append(make("b", alert.class || "drift"), ` ${shown(alert.detail)} `,
        make("span", `${where}${where ? ", " : ""}${clock(alert.time)}${alert.count > 1 ? `, ${alert.count} times` : ""}`, "tag"));
      return item;
    }));
    section.querySelector("h2").textContent =
      `Drift: this log and the API server's differ (${alerts.length} ${alerts.length === 1 ? "alert" : "alerts"})`;
  }
  section.hidden = alerts.length === 0;
  return alerts.length ? ["Drift", `${alerts.length} reported, see above`, "bad"] : ["Drift", "none reported here", ""];
}

// --- running pods

async function pods() {
  if (at("pods").hidden || paused || Date.now() - counted < 5 * PERIOD) return;
  const mine = round;
  const now = await ask("/audit/pods").catch((error) => {
    // This program does not watch them.
    if (error.status === 404) return { hint: error.message };
    throw error;
  });
  if (mine !== round) return;
  counted = Date.now();
  at("states").textContent = shown(now.hint ?? summary(now));
  at("running").replaceChildren(...(now.pods ?? []).map((pod) => {
    const row = make("tr");
    const state = make("td");
    state.append(make("span", pod.state, `badge ${SEVERITY[pod.state] ?? "would-deny"}`));
    row.append(state, make("td", `${pod.namespace}/${pod.pod}`, "object"), make("td", pod.workload ?? ""),
      make("td", pod.reason));
    return row;
  }));
}

const SEVERITY = { Audited: "allowed", Skipped: "allowed", Missing: "denied", Altered: "denied", Revoked: "denied" };

function summary({ watches, counts, more }) {
  if (!watches) return "This replica does not watch running pods; the one that holds Lease lucid-keeper does.";
  const states = Object.entries(counts).map(([state, count]) => `${number(count)} ${state}`).join(", ");
  return `${states || "No running pod requests auditors"}${more ? `; ${number(more)} of them are not listed` : ""}`;
}

// --- rows

function clock(time) {
  const when = new Date(time);
  const today = when.toDateString() === new Date().toDateString();
  const hours = when.toLocaleTimeString("en-GB");
  return today ? hours : `${when.toLocaleDateString("en-CA")} ${hours}`;
}

function verdict(decision) {
  if (!decision.allowed) return ["denied", "✕ denied"];
  if (decision.mode === "break-glass" || decision.ticket) return ["break-glass", "! break-glass"];
  if (decision.wouldDeny) return ["would-deny", "△ would deny"];
  return ["allowed", "✓ allowed"];
}

function why(decision) {
  const texts = [decision.message, ...(decision.findings ?? []), ...(decision.warnings ?? [])].filter(Boolean);
  if (texts.length) return [...new Set(texts)].join(" · ");
  return decision.chain?.length ? decision.chain.join(" → ") : "";
}

function rows(decision) {
  const [kind, text] = verdict(decision);
  const row = make("tr", undefined, `decision ${kind}`);
  const details = make("tr", undefined, "details");
  details.hidden = true;
  const time = make("td", undefined, "time");
  const button = make("button", clock(decision.time));
  button.type = "button";
  button.title = decision.time;
  button.setAttribute("aria-expanded", "false");
  time.append(button);
  const badge = make("td");
  badge.append(make("span", text, `badge ${kind}`));
  if (decision.ticket) badge.append(" ", make("div", decision.ticket, "tag"));
  const request = make("td");
  request.append(make("div", `${decision.operation ?? ""} ${decision.kind ?? ""}`), make("div", decision.webhook + (decision.patched ? ", patched" : "") +
    (decision.dryRun ? ", dry run" : ""), "tag"));
  const name = [decision.namespace, decision.name].filter(Boolean).join("/");
  const object = make("td", undefined, "object");
  object.append(make("div", name));
  const reason = make("td", undefined, "why");
  reason.append(make("div", why(decision)));
  row.append(time, badge, request, object, make("td", decision.tier ?? "", "tier"), caller(decision.user ?? ""), reason);
  const toggle = () => {
    const open = details.hidden;
    if (open && !details.firstChild) details.append(describe(decision));
    details.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  };
  row.addEventListener("click", (event) => {
    // Selecting text must not toggle the row.
    if (button.contains(event.target) || !String(getSelection())) toggle();
  });
  remember("namespaces", decision.namespace);
  remember("tiers", decision.tier);
  return [row, details];
}

// Shortens ServiceAccounts, the most common callers; the details contain the full name.
function caller(user) {
  const account = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(user);
  const cell = make("td", undefined, "user");
  cell.append(make("div", account ? account[2] : user));
  if (account) cell.append(make("div", `of ${account[1]}`, "tag"));
  return cell;
}

function describe(decision) {
  const cell = make("td");
  cell.colSpan = 7;
  const list = make("dl");
  const add = (name, value) => {
    if (value === undefined || value === null || value === "" || value.length === 0) return;
    const definition = make("dd");
    if (Array.isArray(value)) {
      const items = make("ul");
      items.append(...value.map((item) => make("li", item)));
      definition.append(items);
    } else {
      definition.textContent = shown(value);
    }
    list.append(make("dt", name), definition);
  };
  add("Message", decision.message);
  add("Findings", decision.findings);
  add("Warnings", decision.warnings);
  add("Images", decision.images?.map((image) => `${image.container}: ${image.image}: ${image.verdict}`));
  add("Exemptions", decision.exemptions);
  add("Chain", decision.chain?.join(" → "));
  add("Mode", decision.mode);
  add("Tier", decision.tier);
  add("Ticket", decision.ticket);
  add("User", decision.user);
  add("Time", decision.time);
  add("Request uid", decision.uid);
  if (decision.anchor) {
    add("In the log", `seq ${decision.anchor.seq}, leaf ${decision.anchor.leaf}, size ${decision.anchor.size}`);
  }
  cell.append(list);
  return cell;
}

function gap(missed) {
  const row = make("tr", undefined, "gap");
  const cell = make("td", `${number(missed)} decisions came and left the memory between two looks; they are in the log, if there is one`);
  cell.colSpan = 7;
  row.append(cell);
  return row;
}

// Adds a value to the suggestions of a filter.
function remember(list, value) {
  const known = at(list);
  if (!value || known.childElementCount > 200) return;
  if ([...known.children].some((option) => option.value === value)) return;
  const option = make("option");
  option.value = value;
  known.append(option);
}

function trim() {
  const all = at("rows");
  if (all.childElementCount <= 2 * MOST) return;
  while (all.childElementCount > 2 * MOST) all.lastElementChild.remove();
  older = null;
}

function tell() {
  const live = at("live");
  if (token === null) return;
  live.dataset.state = trouble ? "lost" : paused ? "paused" : "live";
  const text = trouble ? `${trouble}; what you see is of ${clock(heard)}` : paused ? "paused" : "live";
  if (live.textContent !== text) live.textContent = text;
  const shownRows = at("rows").querySelectorAll("tr.decision").length;
  const count = `${number(shownRows)} ${shownRows === 1 ? "decision" : "decisions"}${filter ? " for these filters" : ""}, newest first`;
  if (at("count").textContent !== count) at("count").textContent = count;
  const denied = at("rows").querySelectorAll("tr.denied").length;
  document.title = `${at("drift").hidden ? "" : "⚠ "}${denied ? `(${denied} denied) ` : ""}Lucid decisions`;
  at("older").hidden = older === null;
  at("nothing").textContent = older !== null ? "" : shownRows
    ? "Older decisions are in the log, if there is one." : "No decision in memory is like this.";
}

// --- input

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  // Only these characters are valid in a header.
  if (!/^[\x21-\x7e]+$/.test(token)) return lock("A token is one word of ASCII characters.");
  begin();
});
at("lock").addEventListener("click", () => lock());
function pause() {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").textContent = paused ? "Go on" : "Pause";
  tell();
  if (!paused) { clearTimeout(timer); look(); }
}
at("pause").addEventListener("click", pause);
at("older").addEventListener("click", async () => {
  const mine = round;
  try {
    const page = await ask(url({ cursor: older, limit: PAGE }));
    if (mine !== round) return;
    at("rows").append(...page.decisions.flatMap(rows));
    older = page.next;
  } catch (error) {
    if (mine === round) failed(error);
  }
  tell();
});

let typing = 0;
at("filters").addEventListener("input", () => {
  const between = at("filters").elements.time.value === "between";
  for (const label of document.querySelectorAll(".between")) label.hidden = !between;
  clearTimeout(typing);
  typing = setTimeout(begin, 200);
});
at("filters").addEventListener("reset", () => {
  for (const label of document.querySelectorAll(".between")) label.hidden = true;
  setTimeout(begin);
});
at("views").addEventListener("input", () => {
  const view = at("views").elements.view.value;
  for (const section of ["audit", "pods"]) at(section).hidden = section !== view;
  counted = 0;
  clearTimeout(timer);
  look();
});
at("views").addEventListener("submit", (event) => event.preventDefault());
at("filters").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && token !== null && !at("main").hidden) { clearTimeout(timer); look(); }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("main").hidden) return;
  const typed = event.target.matches("input:not([type=radio]), select");
  if (event.key === "Escape" && typed) return event.target.blur();
  if (typed) return;
  if (event.key === "p") {
    pause();
  } else if (at("audit").hidden) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    at("filters").elements.namespace.focus();
  } else if (event.key === "j" || event.key === "k") {
    const buttons = [...at("rows").querySelectorAll("td.time button")];
    const here = buttons.indexOf(document.activeElement);
    const next = buttons[here < 0 ? 0 : here + (event.key === "j" ? 1 : -1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
});

lock();

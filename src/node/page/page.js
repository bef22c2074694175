// The page of a DFM: a stream of the states of all nodes becomes figures, tables and a picture.
"use strict";

const OLD_MS = 3500, RETRY_MS = 5000, HISTORY_S = 600;
const COMMANDS = [["start", "Start"], ["pause", "Pause"], ["resume", "Resume"], ["next-run", "Next run"], ["stop", "Stop"]];
const narrow = matchMedia("(max-width: 599px)");

const byId = (id) => document.getElementById(id);
const numberOf = (value) => (isNumber(value) ? value : 0);

const some = (n, one, many) => `${count(n)} ${n === 1 ? one : many || `${one}s`}`;

let message = null, previous = null, receivedMs = 0, samples = [], connection = null;

// ---- The state of a node, in words.

const GLYPHS = { "gone": "✕", "no figures": "?", "no answer": "?", "error": "✕", "paused": "‖", "stalled": "■", "cut off": "✕", "losing": "▼", "no frames": "✕",
  "not shaped": "▲", "disk low": "▲", "holds back": "‖", "stopping": "◔", "differs": "▲", "waiting": "◔", "busy": "‖", "running": "●" };

// The DFM judges the nodes.
function viewOf(node, peer) {
  const { kind, word, why } = node.view;
  return { name: String(node.node), role: String(node.role), bytes: node.rates?.bytes_per_second, buffer: node.buffer_used,
    figures: figuresOf(node, peer), kind, word, why, glyph: GLYPHS[word] || "○" };
}

// An SFI whose port loses packets has its ROSs send more slowly than planned.
const reducedRate = (node) => (node?.rate_permille < 1000 ? `reduced to ${percent(node.rate_permille / 1000)}` : "");

function figuresOf(node, peer) {
  const rates = node.rates || {}, parts = [];
  if (node.role === "dfm") parts.push(si(rates.events_hz, "Hz"), si(rates.bytes_per_second, "B/s"), `${count(node.open_events)} open`);
  else if (node.reachable) parts.push(si(rates.bytes_per_second, "B/s"), si(node.role === "sfi" ? rates.events_hz : rates.fragments_hz, "Hz"));
  if (node.role === "sfi" && isNumber(peer?.free_credits)) parts.push(some(peer.free_credits, "credit"));
  if (reducedRate(node)) parts.push(reducedRate(node));
  return parts;
}

// Returns the bytes per second of each pair, from the counters of two messages; no rates after a restart.
function pairRates(now, before) {
  const rates = new Map(), seconds = before ? now.elapsed - before.elapsed : 0;
  if (!(seconds > 0 && seconds < 30)) return rates;
  const peersBefore = new Map();
  for (const node of before.nodes) for (const peer of node.peers || []) peersBefore.set(`${node.node} ${node.start_time} ${peer.node}`, peer.bytes);
  for (const role of ["sfi", "ros"]) {
    for (const node of now.nodes.filter((one) => one.role === role)) {
      for (const peer of node.peers || []) {
        const last = peersBefore.get(`${node.node} ${node.start_time} ${peer.node}`);
        if (isNumber(last) && isNumber(peer.bytes)) rates.set(role === "ros" ? `${node.node} ${peer.node}` : `${peer.node} ${node.node}`, Math.max(0, peer.bytes - last) / seconds);
      }
    }
  }
  return rates;
}

// ---- Figures

const tiles = new Map();

function showTile(title, value, note, kind) {
  if (!tiles.has(title)) {
    const box = make("div"), figure = make("dd"), small = make("small"), text = make("span");
    figure.append(text, small);
    box.append(make("dt", "", title), figure);
    byId("tiles").append(box);
    tiles.set(title, { figure, text, small });
  }
  const tile = tiles.get(title);
  setText(tile.text, value);
  setText(tile.small, note || "");
  tile.figure.className = kind || "";
}

function showTiles(dfm) {
  const rates = dfm.rates || {}, counts = dfm.counts || {}, latency = dfm.latency_us || {};
  showTile("Event rate", si(rates.events_hz, "Hz"), `triggers ${si(rates.triggers_hz, "Hz")}`);
  showTile("Data rate", si(rates.bytes_per_second, "B/s"), `${si(counts.payload_bytes, "B")} in all`);
  showTile("Busy", percent(rates.busy_share), dfm.busy ? "busy now" : "of the last second");
  showTile("Open events", count(dfm.open_events), some(dfm.waiting_triggers, "trigger waits", "triggers wait"));
  showTile("Median latency", microseconds(latency.p50), `99 %: ${microseconds(latency.p99)}`);
  showTile("Complete events", count(counts.events_complete), `of ${some(counts.triggers, "trigger")}`);
  showTile("Partial and lost", `${count(counts.events_partial)} + ${count(counts.events_lost)}`, "events", counts.events_partial > 0 || counts.events_lost > 0 ? "bad" : "");
}

// The disk that an operator must look at first.
function showDisk(nodes) {
  const left = (node) => (isNumber(node.output_left_seconds) ? node.output_left_seconds : Infinity), order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const [node] = nodes.filter((one) => one.disk && isNumber(one.output_free_bytes)).sort((a, b) =>
    order(b.disk.low, a.disk.low) || order(left(a), left(b)) || order(a.output_free_bytes, b.output_free_bytes));
  if (node) showTile("Disk", si(node.output_free_bytes, "B"), `free at ${node.node}${left(node) < Infinity ? `, full in ${duration(left(node))}` : ""}`, node.disk.low ? "warn" : "");
}

// Times of this day have no date.
function utc(seconds, now = seconds) {
  const text = new Date(1000 * seconds).toISOString();
  return `${now - seconds < 43200 ? "" : `${text.slice(0, 10)} `}${text.slice(11, 19)} UTC`;
}

const pad = (value) => String(value).padStart(2, "0");
const clock = (seconds) => `${Math.floor(seconds / 3600)}:${pad(Math.floor(seconds / 60) % 60)}:${pad(Math.floor(seconds) % 60)}`;

function showRunTime(control) {
  const { seconds, paused_seconds: paused, next_run: next } = control;
  showTile("Run time", isNumber(seconds) ? clock(seconds) : "–", isNumber(seconds) ? (paused > 0 ? `paused for ${duration(paused)}` : "h:min:s") : isNumber(next) ? `next is run ${next}` : "");
}

// ---- The last run, and the metadata

function describeLast({ run, status, reasons, events, end }, now) {
  const { complete = 0, partial = 0, lost = 0 } = events || {}, at = Date.parse(end) / 1000;
  const built = [some(complete, "complete event"), partial > 0 && `${count(partial)} partial`, lost > 0 && `${count(lost)} lost`].filter(Boolean).join(", ");
  return [`run ${run}: ${[status, ...(Array.isArray(reasons) ? reasons : [])].join("; ")}`, events && built, isNumber(at) && `ended ${duration(Math.max(0, now - at))} ago, ${utc(at, now)}`].filter(Boolean).join(" · ");
}

function showFacts(control, now) {
  const last = control.last_run, facts = [];
  if (last) facts.push(["Last run", describeLast(last, now), last.status === "error" ? "bad" : last.status === "ok" ? "" : "warn"]);
  for (const [name, value] of Object.entries(control.metadata || {})) facts.push([name, String(value), ""]);
  byId("facts").replaceChildren(...facts.map(([name, value, kind]) => {
    const fact = make("div");
    fact.append(make("dt", "", name), make("dd", kind, value));
    return fact;
  }));
}

// ---- Tables

function fillTable(table, heads, rows) {
  const body = make("tbody"), head = make("thead"), line = make("tr");
  for (const [text, className] of heads) {
    const cell = make("th", className || "", text);
    cell.scope = "col";
    line.append(cell);
  }
  head.append(line);
  for (const { cells, className } of rows) {
    const row = make("tr", className || "");
    cells.forEach(([text, kind, note], i) => {
      const cell = make("td", [heads[i][1], kind].filter(Boolean).join(" "), text);
      if (note) cell.append(" ", make("small", "", note));
      row.append(cell);
    });
    body.append(row);
  }
  table.replaceChildren(head, body);
}

let lossShown = false;

// Losses by place. There is no rate while nodes come, go or begin again, because totals jump then.
function showLoss(now, before) {
  const seconds = before ? now.elapsed - before.elapsed : 0, last = new Map((before?.places || []).map((row) => [row.place, row.total]));
  const nodesOf = (message) => JSON.stringify(message.nodes.map((node) => [node.node, node.reachable, node.start_time]));
  const same = seconds > 0 && nodesOf(now) === nodesOf(before), places = now.places || [], losing = places.some((row) => row.total > 0);
  const unknown = places.filter((row) => !isNumber(row.total)).length;
  setText(byId("loss-summary"), losing ? "All places" : `No loss${unknown > 0 ? ` known; ${some(unknown, "place")} unknown` : ""}`);
  // Opens with the first loss, and closes with the next run. In between, the reader decides.
  if (losing !== lossShown) byId("loss-box").open = losing;
  lossShown = losing;
  fillTable(byId("loss"), [["Place"], ["Now", "number"], ["Total", "number"], ["Most at"]], places.map(({ place, unit, total, nodes }) => {
    const gained = same ? Math.max(0, total - last.get(place)) / seconds : NaN, most = Object.entries(nodes).sort((a, b) => b[1] - a[1])[0];
    return { cells: [[place], [isNumber(gained) ? (gained > 0 ? `${si(gained, "")}/s` : "0") : "–", gained > 0 ? "loss" : "none"],
      [isNumber(total) ? some(total, unit) : "not known", total > 0 ? "loss" : "none"], [most ? most[0] : "", most ? "" : "none"]] };
  }));
}

function showShaping(now, before) {
  const rows = [], seconds = before ? now.elapsed - before.elapsed : 0, last = new Map((before?.shaping || []).map((row) => [row.node, row]));
  const cells = (name, row, earlier, note) => {
    const reduced = reducedRate(now.nodes.find((node) => node.role === "sfi" && node.node === row.node));
    const sent = earlier && seconds > 0 && row.sources === earlier.sources && row.bytes >= earlier.bytes ? 8 * (row.bytes - earlier.bytes) / seconds : undefined;
    return [[name, "", note], [si(row.rate_bps, "bit/s"), reduced && "warn", reduced], [si(sent, "bit/s")], [si(row.backlog_bytes, "B"), row.limit_bytes > 0 && row.backlog_bytes > 0.8 * row.limit_bytes ? "warn" : ""],
      [count(row.drops), row.drops > 0 ? "loss" : "none"]];
  };
  const sources = now.nodes.filter((node) => node.role === "ros" && Array.isArray(node.shaping));
  for (const row of now.shaping || []) {
    rows.push({ cells: cells(String(row.node), row, last.get(row.node), [row.address, some(row.sources, "ROS")].filter(Boolean).join(", ")) });
    if (sources.length > PAIR_ROSS || now.shaping.length > PAIR_SFIS) continue;
    for (const node of sources) {
      const earlier = before?.nodes.find((one) => one.node === node.node && one.start_time === node.start_time)?.shaping?.find((one) => one.node === row.node);
      for (const part of node.shaping.filter((one) => one.node === row.node)) rows.push({ className: "part", cells: cells(String(node.node), part, earlier) });
    }
  }
  byId("unshaped").hidden = rows.length > 0;
  byId("shaping").hidden = rows.length === 0;
  fillTable(byId("shaping"), [["To"], ["Rate", "number"], ["Sent", "number"], ["Backlog", "number"], ["Drops", "number"]], rows);
}

// A narrow screen has no picture: there, the table has the worst nodes first, and only what matters.
function showNodeTable(now, views) {
  if (!byId("node-table-box").open) return;
  const kinds = ["gone", "bad", "warn"], rank = (view) => (kinds.indexOf(view.kind) + 4) % 4, rows = now.nodes.map((node, i) => [node, views[i]]);
  const state = (view) => [`${view.glyph} ${view.word}`, { gone: "loss keep", bad: "loss keep", warn: "warn keep" }[view.kind] || "keep"];
  const rates = (node) => [[si(node.rates?.events_hz ?? node.rates?.fragments_hz, "Hz")], [si(node.rates?.bytes_per_second, "B/s")]];
  if (narrow.matches)
    fillTable(byId("node-table"), [["Node"], ["State"], ["Rate", "number"], ["Data", "number"]],
      rows.sort(([, a], [, b]) => rank(a) - rank(b)).map(([node, view]) => ({ cells: [[view.name, "", view.why], state(view), ...rates(node)] })));
  else
    fillTable(byId("node-table"), [["Node"], ["Role"], ["State"], ["Events or fragments", "number"], ["Data", "number"], ["Buffer", "number"], ["Disk free", "number"], ["Reason"]],
      rows.map(([node, view]) => ({ cells: [[view.name], [view.role], state(view), ...rates(node), [percent(node.buffer_used)],
        [isNumber(node.output_free_bytes) ? si(node.output_free_bytes, "B") : "", node.disk?.low ? "warn" : "", isNumber(node.output_left_seconds) ? `full in ${duration(node.output_left_seconds)}` : ""], [view.why || ""]] })));
}

// ---- Banners

const banners = new Map();

function banner(name, kind, text) {
  if (!text) {
    banners.get(name)?.remove();
    banners.delete(name);
    return;
  }
  if (!banners.has(name)) {
    banners.set(name, make("p"));
    byId("banners").append(banners.get(name));
  }
  banners.get(name).className = `banner ${kind}`;
  setText(banners.get(name), text);
}

// The summary of the run, as in the first line of evb status. An error has a banner of its own.
function showBanners(now, dfm) {
  const { blames, state, reason } = now.run || {}, shown = blames && state !== "error" ? String(reason) : "";
  banner("stall", "bad", shown && state === "stalled" ? `■ The run makes no progress ${shown.replace(/^stalled /, "")}` : "");
  banner("losing", "bad", shown && state === "losing" ? `▼ The run loses events: ${shown}` : "");
  banner("fault", "warn", shown && !["stalled", "losing"].includes(state) ? `▲ ${shown}` : "");
  banner("dfm", "bad", dfm?.reachable ? "" : `✕ The DFM does not report its own state: ${dfm?.problem || "no answer"}`);
}

function showAge() {
  const age = (Date.now() - receivedMs) / 1000;
  const old = receivedMs > 0 && Date.now() - receivedMs > OLD_MS;
  document.body.classList.toggle("old", old);
  if (old) banner("connection", "bad", `✕ No connection to the DFM: these figures are ${duration(age)} old`);
  else if (receivedMs === 0 && performance.now() > OLD_MS) banner("connection", "bad", "✕ No figures from the DFM yet");
  else banner("connection");
}

// ---- The stream

const picture = new Picture();
const charts = [
  new Chart(byId("charts"), "Event rate", 2, (value) => si(value, "Hz")),
  new Chart(byId("charts"), "Data rate", 3, (value) => si(value, "B/s")),
  new Chart(byId("charts"), "Busy", 4, percent, 1),
];

function addSamples(more) {
  if (more.length === 0) return;
  const end = more[more.length - 1][0];
  samples = samples.filter((sample) => sample[0] < more[0][0] - 0.5 && sample[0] > end - HISTORY_S).concat(more.filter((sample) => sample[0] > end - HISTORY_S));
  for (const chart of charts) chart.show(samples);
}

async function loadHistory() {
  try {
    const reply = await fetch("/history");
    if (!reply.ok) return;
    const { samples: more } = await reply.json();
    addSamples(more.filter((sample) => Array.isArray(sample) && sample.every(isNumber)));
  } catch {
    // The stream shows that the DFM is gone.
  }
}

function show(now) {
  // After a restart of the DFM, its clock begins again.
  const before = previous && now.elapsed > previous.elapsed ? previous : null, dfm = now.nodes.find((node) => node.role === "dfm");
  const peers = new Map((dfm?.peers || []).map((peer) => [peer.node, peer]));
  const views = now.nodes.map((node) => viewOf(node, peers.get(node.node)));
  document.title = `${dfm?.reachable ? si(dfm.rates?.events_hz, "Hz") : "no figures"} · ${now.scenario} · evb`;
  setText(byId("scenario"), String(now.scenario));
  setText(byId("summary"), [dfm?.run ? `run ${dfm.run}` : "no run yet", ["losing", "stalled"].includes(now.run?.state) ? now.run.state : dfm?.control_state || dfm?.state, `${now.mode} over ${String(now.transport).toUpperCase()}`,
    some(views.filter((view) => view.role === "ros").length, "ROS"), some(views.filter((view) => view.role === "sfi").length, "SFI")].filter(Boolean).join(" · "));
  setText(byId("clock"), isNumber(now.time) ? utc(now.time) : "");
  setText(byId("version"), `evb ${dfm?.version || ""}`);
  if (dfm?.reachable) {
    showTiles(dfm);
    addSamples([[now.time, numberOf(dfm.rates?.triggers_hz), numberOf(dfm.rates?.events_hz), numberOf(dfm.rates?.bytes_per_second), numberOf(dfm.rates?.busy_share)]]);
  }
  if (now.control) {
    showRunTime(now.control);
    showFacts(now.control, now.time);
  }
  showDisk(now.nodes);
  showBanners(now, dfm);
  showControl(now, dfm);
  showLoss(now, before);
  showShaping(now, before);
  showNodeTable(now, views);
  picture.show(views, pairRates(now, before), dfm?.reachable ? { triggers: dfm.rates?.triggers_hz, events: dfm.rates?.events_hz, push: now.mode === "push" } : null);
}

function receive(text) {
  previous = message;
  message = JSON.parse(text);
  receivedMs = Date.now();
  show(message);
  showAge();
}

function connect() {
  if (connection || document.hidden) return;
  connection = new EventSource("/events");
  connection.addEventListener("open", () => { if (Date.now() - receivedMs > OLD_MS) loadHistory(); });
  connection.addEventListener("message", (event) => receive(event.data));
  connection.addEventListener("error", () => {
    // Each connection brings one message. The browser connects again by itself, unless the server refused.
    if (connection?.readyState !== EventSource.CLOSED) return;
    connection = null;
    setTimeout(connect, RETRY_MS);
  });
}

// The DFM asks the nodes only while a browser shows the page.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) connect();
  else {
    connection?.close();
    connection = null;
  }
});
setInterval(showAge, 1000);

// ---- Run control

const buttons = new Map();
let pending = null;

for (const [command, label] of COMMANDS) {
  const button = make("button", command === "stop" ? "danger" : "", label);
  button.type = "button";
  button.addEventListener("click", () => order(command));
  byId("control").append(button);
  buttons.set(command, button);
}

// Between runs, a stop only keeps the next run from beginning by itself.
const hasNothingToStop = (control) => !!control?.held && !isNumber(control.run);

// The page has buttons only if the DFM takes commands with a token.
function showControl(now, dfm) {
  const state = now.commands ? dfm?.control_state : undefined;
  byId("control").hidden = !state;
  for (const [command, button] of buttons) button.disabled = !now.commands?.[command]?.includes(state) || (command === "stop" && hasNothingToStop(now.control));
  if (!state) byId("ask").hidden = true;
  banner("control", "note", dfm?.control_state === "paused" ? "‖ The run is paused: the DFM takes no triggers" : "");
  banner("error", "bad", dfm?.control_state === "error" ? `✕ ${String(dfm.problem || "the last run ended in an error").replace(/^the /, "The ")}; the next run begins only when you start it` : "");
}

function askToken(command, text) {
  pending = command;
  byId("ask").hidden = false;
  banner("token", "note", text);
  byId("token").value = "";
  byId("token").focus();
}

function confirmStop() {
  const dialog = byId("confirm");
  setText(byId("confirm-text"), `Stop the run of ${message?.scenario || "this scenario"}? Its open events are finished first.`);
  return new Promise((resolve) => {
    byId("confirm-yes").onclick = () => { resolve(true); dialog.close(); };
    byId("confirm-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(false);
    dialog.showModal();
  });
}

async function order(command) {
  const token = sessionStorage.getItem("evb-token");
  if (!token) return askToken(command, "Enter the token of this DFM to control the run. The browser keeps it until you close this tab.");
  if (command === "stop" && !(await confirmStop())) return;
  banner("token");
  try {
    const reply = await fetch("/control", { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` }, body: JSON.stringify({ command }) });
    const answer = await reply.json().catch(() => ({}));
    if (reply.status === 401 || reply.status === 403) {
      sessionStorage.removeItem("evb-token");
      return askToken(command, `The DFM refused the token: ${answer.error || reply.status}`);
    }
    if (!reply.ok) banner("token", "bad", `The DFM refused the command "${command}": ${answer.error || reply.status}`);
  } catch {
    banner("token", "bad", `The command "${command}" did not reach the DFM`);
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim(), command = pending;
  byId("ask").hidden = true;
  byId("token").value = "";
  banner("token");
  if (!token) return;
  sessionStorage.setItem("evb-token", token);
  order(command);
});
byId("ask-cancel").addEventListener("click", () => {
  byId("ask").hidden = true;
  banner("token");
});

// ---- Light and dark

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const chosen = localStorage.getItem("evb-theme"), dark = chosen ? chosen === "dark" : prefersDark.matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  setText(byId("theme"), dark ? "☀ Light" : "☾ Dark");
  byId("theme").setAttribute("aria-label", dark ? "Change to light colours" : "Change to dark colours");
  return dark;
}

byId("theme").addEventListener("click", () => {
  localStorage.setItem("evb-theme", showTheme() ? "light" : "dark");
  showTheme();
});
prefersDark.addEventListener("change", showTheme);
byId("node-table-box").addEventListener("toggle", () => { if (message) show(message); });
function showNarrow() {
  byId("node-table-box").open = narrow.matches;
  if (message) show(message);
}

narrow.addEventListener("change", showNarrow);
showNarrow();
showTheme();
connect();

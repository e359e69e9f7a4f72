// The desk's keys and its quiet renewal. Every key has a link, a button or a field that does the same by mouse.
"use strict";

const body = document.body;
const help = document.getElementById("help");
const EVERY_MS = 3000;

// --- keys -----------------------------------------------------------------------------------------------------

const writes = (element) => element instanceof HTMLElement && element.closest("input, textarea, select, [contenteditable]");

function act(key) {
  const target = [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key.split(" ").includes(key));
  if (!target || target.disabled) return false;
  if (target.hasAttribute("data-focus")) {
    target.focus();
    target.scrollIntoView({ block: "nearest" });
  } else {
    target.click();
  }
  return true;
}

function step(by) {
  const links = [...document.querySelectorAll("[data-rows] th a")];
  if (!links.length) return false;
  const now = links.indexOf(document.activeElement);
  const next = now < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(now + by, 0), links.length - 1);
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
  return true;
}

const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
const scrolls = (key) => key.startsWith("Arrow") && !document.activeElement?.closest("[data-rows]");

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && writes(event.target)) {
    event.preventDefault();
    event.target.form.requestSubmit();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat && !(event.key in STEPS)) return;
  if (writes(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (help.open) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((key in STEPS && !scrolls(key) && step(STEPS[key])) || act(key)) event.preventDefault();
});

document.getElementById("help-open").addEventListener("click", () => help.showModal());

// --- forms ----------------------------------------------------------------------------------------------------

// A second press of a key or the mouse must not send a form twice, nor decide about what comes next: where the next
// page is here already, nobody has seen it.
const SEEN_MS = 500;
let sent = true;
setTimeout(() => { sent = false; }, SEEN_MS);
document.addEventListener("submit", (event) => {
  if (event.target.method === "dialog") return;
  if (sent) event.preventDefault();
  else event.target.querySelector("[data-sending]")?.removeAttribute("hidden");
  sent = true;
});

// A session can end while a reason or a message is being written, so this browser keeps the latest of each until its
// submission is decided, or the message sent.
const attempt = (action) => { try { return action(); } catch { return null; } };  // storage can be switched off
const whose = `${document.title} ${document.getElementById("go-worker")?.textContent}`;  // desks of other projects share it
for (const name of ["reason", "message"]) {
  const key = `mitl-desk-${name}`, form = document.querySelector(`form[data-draft=${name}]`);
  const draft = attempt(() => JSON.parse(localStorage.getItem(key)));
  const isDone = draft && draft.item === new URLSearchParams(location.search).get("after");
  if (isDone) attempt(() => localStorage.removeItem(key));
  if (!form) continue;
  const fields = [...form.querySelectorAll("textarea, input:not([type=hidden])")], { item } = form.dataset;
  const keep = () => attempt(() => localStorage.setItem(key, JSON.stringify({ item, whose, texts: fields.map((field) => field.value) })));
  if (!isDone && draft?.whose === whose) fields.forEach((field, place) => { field.value ||= draft.texts?.[place] ?? ""; });
  if (fields.some((field) => field.value)) keep();  // also what the server did not take, whose message has another name now
  form.addEventListener("input", keep);
}
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

if (location.hash === "#write") document.getElementById("subject")?.focus();

// --- renewal --------------------------------------------------------------------------------------------------

// Only the parts that are marked `data-live` are renewed; the submission at hand and what is being written never are.
async function renew(mark) {
  const reply = await fetch(body.dataset.self, { headers: { Accept: "text/html" } });
  if (!reply.ok) return;
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  if ("empty" in body.dataset && !("empty" in fresh.body.dataset)) return location.assign(body.dataset.self);
  const focused = document.activeElement?.id;
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const found = fresh.getElementById(old.id);
    if (found && found.outerHTML !== old.outerHTML) old.replaceWith(document.adoptNode(found));
  }
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
  body.dataset.mark = mark;
}

function tellOfOther(decision) {
  const banner = document.getElementById("conflict");
  if (!banner.hidden) return;
  banner.textContent = `Somebody else decided about this submission meanwhile: ${decision}. What you see is as it was before; nothing you press here changes it.`;
  banner.hidden = false;
  for (const field of document.querySelectorAll("#decide button, #decide textarea")) field.disabled = true;
}

async function look() {
  if (document.hidden) return;
  const item = body.dataset.item;
  const reply = await fetch("/state" + (item ? `?item=${item}` : ""), { headers: { Accept: "application/json" } });
  if (!reply.ok) throw new Error("no state");
  const state = await reply.json();
  if (sent) return;  // a form is on its way: what was decided meanwhile may be its own
  if ("waits" in body.dataset && state.item && state.item !== "waits") tellOfOther(state.item);
  if (state.mark !== body.dataset.mark) await renew(state.mark);
}

const lost = document.getElementById("lost");
async function loop() {
  try {
    await look();
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
  setTimeout(loop, EVERY_MS);
}
if (body.dataset.self) setTimeout(loop, EVERY_MS);

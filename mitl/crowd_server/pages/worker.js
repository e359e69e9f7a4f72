"use strict";
// Workers' pages without it: forms and links do all that is needed. It adds local times, a countdown, drafts, options and the way on.
(() => {
  // Storage can be switched off; drafts are a comfort, so a failure is silent.
  const attempt = action => { try { return action(); } catch (error) { return null; } };
  const prefix = "mitl-draft:", longest = 2000000, keepFor = 14 * 24 * 3600 * 1000;

  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.title = time.textContent;
    time.textContent = attempt(() => at.toLocaleString(undefined, {dateStyle: "medium", timeStyle: "short"})) || time.textContent;
  }

  // Drafts stay in this browser, also when it is closed, until their HIT is sent or two weeks old.
  attempt(() => {
    for (const name of Object.keys(localStorage)) {
      if (!name.startsWith(prefix)) continue;
      const kept = attempt(() => JSON.parse(localStorage.getItem(name)));
      if (!kept || !(Date.now() - kept.at < keepFor)) localStorage.removeItem(name);
    }
  });
  const sent = document.querySelector("[data-sent]");
  if (sent) attempt(() => localStorage.removeItem(prefix + sent.dataset.sent));
  const unsent = document.getElementById("unsent");
  if (unsent) unsent.hidden = attempt(() => localStorage.getItem(prefix + unsent.dataset.token)) === null;

  // A draft that can no longer be sent is kept to its end, but nobody is led to it.
  const draft = name => attempt(() => JSON.parse(localStorage.getItem(name)));
  const close = token => {
    const kept = draft(prefix + token);
    if (kept) attempt(() => localStorage.setItem(prefix + token, JSON.stringify({at: kept.at, fields: kept.fields})));
  };
  const closed = document.querySelector("[data-closed]");
  if (closed) close(closed.dataset.closed);
  // Who no longer takes part leaves nothing behind: drafts that name nobody can be theirs, and are of no more use to anyone.
  const withdrawn = document.querySelector("[data-withdrawn]");
  if (withdrawn) attempt(() => {
    for (const name of Object.keys(localStorage)) {
      const {worker} = draft(name) || {};
      if (name.startsWith(prefix) && (worker === undefined || worker === withdrawn.dataset.withdrawn)) localStorage.removeItem(name);
    }
  });

  // The time that is left for a HIT or a test. The steady clock may stand still while a computer sleeps, and the other one be set back: the
  // later of the two counts.
  const timer = document.getElementById("timer"), said = document.getElementById("said");
  let ticking;
  if (timer) {
    const {seconds: given, soon, warning} = timer.dataset, steady = performance.now(), wall = Date.now();
    const two = number => String(number).padStart(2, "0");
    const tick = () => {
      const passed = Math.max(performance.now() - steady, Date.now() - wall) / 1000, left = Math.max(0, Math.round(given - passed));
      const hours = Math.floor(left / 3600), minutes = Math.floor(left / 60) % 60, seconds = left % 60;
      timer.textContent = left ? (hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`) + " left" : "time is over";
      timer.classList.toggle("soon", left < soon);
      if (left && left < soon && !said.textContent) said.textContent = warning;
      if (left) return;
      clearInterval(ticking);
      document.getElementById("over").hidden = false;
      timer.dispatchEvent(new Event("over"));
    };
    ticking = setInterval(tick, 1000);
    addEventListener("DOMContentLoaded", tick);
  }

  const frame = document.getElementById("hit"), earlier = document.getElementById("earlier");
  const number = token => token.split("-")[0];
  const drafts = () => Object.keys(localStorage).filter(key => key.startsWith(prefix) && (draft(key) || {}).worker === earlier.dataset.worker)
    .map(key => key.slice(prefix.length));
  // Who takes a HIT again after its time ran out finds what they entered: of its token only what follows the number changed.
  if (frame && earlier) attempt(() => {
    const here = frame.dataset.token, before = drafts().find(token => token !== here && number(token) === number(here));
    if (!before || draft(prefix + here)) return;
    localStorage.setItem(prefix + here, localStorage.getItem(prefix + before));
    localStorage.removeItem(prefix + before);
  });
  // Who comes back to the list, or by a study link to another HIT, has no way to one whose time ran out meanwhile.
  if (earlier) attempt(() => {
    const isHere = token => frame ? frame.dataset.token === token : document.querySelector(`a[href="/w/a/${CSS.escape(token)}"]`);
    const token = drafts().find(token => !isHere(token));
    if (!token) return;
    earlier.querySelector("a").href = "/w/a/" + token;
    earlier.hidden = false;
  });
  if (!frame) return;
  const key = prefix + frame.dataset.token, choices = "mitl-options";
  // A page of another site does not say what was entered.
  let over = false, answered = !frame.src.startsWith(location.origin + "/") || attempt(() => localStorage.getItem(key)) !== null;

  // One slip would cost all that was entered, since a HIT that was returned is not offered again at once.
  document.querySelector("form[action$='/return']").addEventListener("submit", event => {
    if (answered && !confirm("Return this HIT? What you entered will not be sent, and you get nothing for it.")) event.preventDefault();
    else close(frame.dataset.token);
  });

  // The HIT is what people came for, so their first key is its. Once only, and when it is there: a frame of another process
  // that is focused while it is empty has the focus in name alone.
  let entered = false;
  const enter = () => {
    if (!entered && document.activeElement === document.body) frame.focus();
    entered = true;
  };
  addEventListener("load", enter);
  // A browser short of time may give a HIT the focus in name alone: then its keys arrive here, and it is led there again.
  addEventListener("keydown", () => {
    if (document.activeElement !== frame) return;
    frame.blur();
    frame.focus();
  });

  const clean = fields => Array.isArray(fields) && fields.every(pair => Array.isArray(pair) && pair.length === 2 && pair.every(text => typeof text === "string"));
  const isChosen = options => Array.isArray(options) && options.length < 20 && options.every(pair => Array.isArray(pair) && pair.length === 2 && typeof pair[0] === "string" && typeof pair[1] === "boolean");
  const chosen = () => {
    const options = attempt(() => JSON.parse(localStorage.getItem(choices)));
    return isChosen(options) ? options : [];
  };
  const keep = fields => {
    answered = true;
    const text = JSON.stringify({at: Date.now(), fields, worker: earlier.dataset.worker});
    if (text.length <= longest) attempt(() => localStorage.setItem(key, text));
  };
  // A HIT may be answered before this page listens: what it then says of itself alone must not replace what was kept.
  let told = false;
  const restore = () => {
    told = true;
    const kept = attempt(() => JSON.parse(localStorage.getItem(key)));
    // The frame's origin is opaque, so no address can name it; the draft is this HIT's own.
    frame.contentWindow.postMessage({
      type: "mitl-restore",
      fields: kept && clean(kept.fields) ? kept.fields : null,
      options: chosen(),
    }, "*");
  };

  // The same HIT in another window: what was entered last is kept, and what was sent first counts.
  addEventListener("storage", event => {
    if (event.key !== key || over) return;
    if (event.newValue === null) location.reload();
    else document.getElementById("twice").hidden = false;
  });

  // Where answers cannot be sent, the browser puts a page of its own into the frame, which says nothing; a reply of ours does, and so does
  // a page that held its form back, when its last picture comes.
  const lost = document.getElementById("lost");
  let sending = false, loaded = false;
  frame.addEventListener("load", () => {
    if (sending) setTimeout(() => {
      lost.hidden = !sending || loaded;
      loaded = false;
    }, 1500);
  });
  lost.querySelector("a").addEventListener("click", event => {
    event.preventDefault();
    lost.hidden = true;
    entered = false;
    frame.src = frame.src;
  });

  // Once the server's page was asked for, it has the word: a HIT that only claims to be sent cannot ask for it for ever.
  // From then on the worker asks, by a link: what is claimed later may be true.
  const asked = new URLSearchParams(location.search).has("sent");
  addEventListener("message", event => {
    if (event.source !== frame.contentWindow || !event.data || over) return;
    const {type, note, fields, options} = event.data;
    if (type === "mitl-sent") sending = true;
    else if (type === "mitl-shown") {
      loaded = sending && lost.hidden;
      lost.hidden = true;
    } else if (!["mitl-draft", "mitl-options"].includes(type)) {
      sending = false;
      lost.hidden = true;
    }
    if (type === "mitl-ready") {
      restore();
      enter();
    }
    else if (type === "mitl-draft" && clean(fields)) {
      if (told || !answered) keep(fields);
      else restore();
      told = true;
    }
    else if (type === "mitl-options" && isChosen(options)) attempt(() => localStorage.setItem(choices, JSON.stringify([...new Map([...chosen(), ...options])])));
    else if (type === "mitl-submitted" || type === "mitl-refused" && ["late", "over", "withdrawn"].includes(note)) {
      if (asked) document.getElementById("claimed").hidden = false;
      else {
        over = true;
        clearInterval(ticking);  // what was sent in time is not said to be late while the next page comes
        location.replace(location.pathname + "?sent=1");
      }
    } else if (type === "mitl-refused") document.getElementById("large").hidden = note !== "large";
  });
})();

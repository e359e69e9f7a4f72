"use strict";
// The page around a HIT: counts down, keeps the frame's draft for a reload, and shows the way on after submission.
(() => {
  const frame = document.getElementById("hit"), timer = document.getElementById("timer"), done = document.getElementById("done");
  const key = "mitl-draft:" + frame.dataset.token, longest = 200000, keepFor = 14 * 24 * 3600 * 1000;
  const end = Date.now() + 1000 * Number(timer.dataset.seconds);
  let over = false;

  const tick = () => {
    const left = Math.max(0, Math.round((end - Date.now()) / 1000));
    const hours = Math.floor(left / 3600), minutes = Math.floor(left / 60) % 60, seconds = left % 60;
    const two = number => String(number).padStart(2, "0");
    timer.textContent = left ? (hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`) + " left" : "time is over";
    timer.classList.toggle("soon", left < 300);
    if (!left || over) clearInterval(ticking);
  };
  const ticking = setInterval(tick, 1000);
  tick();

  // Storage can be switched off; drafts are a comfort, so a failure is silent.
  const attempt = action => { try { return action(); } catch (error) { return null; } };
  const clean = fields => Array.isArray(fields) && fields.every(pair => Array.isArray(pair) && pair.length === 2 && pair.every(text => typeof text === "string"));
  const keep = fields => {
    const text = JSON.stringify({at: Date.now(), fields});
    if (text.length <= longest) attempt(() => localStorage.setItem(key, text));
  };
  const restore = () => {
    const kept = attempt(() => JSON.parse(localStorage.getItem(key)));
    // The frame's origin is opaque, so no address can name it; the draft is this HIT's own.
    if (kept && clean(kept.fields)) frame.contentWindow.postMessage({type: "mitl-restore", fields: kept.fields}, "*");
  };
  attempt(() => {
    for (const name of Object.keys(localStorage)) {
      if (!name.startsWith("mitl-draft:")) continue;
      const kept = attempt(() => JSON.parse(localStorage.getItem(name)));
      if (!kept || !(Date.now() - kept.at < keepFor)) localStorage.removeItem(name);
    }
  });

  addEventListener("message", event => {
    if (event.source !== frame.contentWindow || !event.data || over) return;
    const {type, fields} = event.data;
    if (type === "mitl-ready") restore();
    else if (type === "mitl-draft" && clean(fields)) keep(fields);
    else if (type === "mitl-submitted") {
      over = true;
      attempt(() => localStorage.removeItem(key));
      timer.hidden = true;
      for (const form of document.querySelectorAll("header form")) form.hidden = true;
      done.hidden = false;
      done.querySelector("button").focus();
    }
  });
})();

"use strict";
// The operator's page: renews its numbers in place, and says so when it cannot.
(() => {
  const every = 5000, patience = 10000;

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const input = button.parentElement.querySelector("input");
      input.select();
      // The clipboard is there on https and on this machine alone; the selected text can still be copied by hand.
      try { await navigator.clipboard.writeText(input.value); button.textContent = "Copied"; }
      catch (error) { button.textContent = "Selected: copy it"; }
    });
  }
  // A second press would be harmless, but confusing.
  document.addEventListener("submit", event => {
    const buttons = event.target.querySelectorAll("button");
    setTimeout(() => { for (const button of buttons) button.disabled = true; });
  });
  addEventListener("pageshow", event => {
    if (event.persisted) for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
  });

  const connection = document.getElementById("connection"), asOf = document.getElementById("as-of");
  if (!connection) return;
  if (document.getElementById("said")) history.replaceState(null, "", "/operator");
  let shape = connection.dataset.shape, tag = "", busy = false, over = false, timer = 0;

  const say = (text, lost) => {
    // The line is read out when it changes, so it changes only with the news.
    if (connection.textContent !== text) connection.textContent = text;
    connection.classList.toggle("lost", lost);
  };
  const show = ({texts, bars}) => {
    for (const place of document.querySelectorAll("[data-live]")) {
      const text = texts[place.dataset.live];
      if (text === undefined || text === place.textContent) continue;
      place.textContent = text;
      place.classList.add("fresh");
      place.addEventListener("animationend", () => place.classList.remove("fresh"), {once: true});
    }
    for (const bar of document.querySelectorAll("[data-bar]")) {
      const [done, wanted] = bars[bar.dataset.bar] || [bar.value, bar.max];
      bar.max = wanted || 1;
      bar.value = done;
    }
  };
  const ask = (address, headers) => fetch(address, {headers, cache: "no-store", signal: AbortSignal.timeout(patience)});
  // Rows came, went or changed their state: take the tables again from the page itself, and leave forms alone.
  const renew = async () => {
    const reply = await ask("/operator", {});
    if (!reply.ok) throw new Error("refused");
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const focused = document.activeElement && document.activeElement.id;
    for (const name of ["groups", "invited", "visits", "studies"]) {
      const old = document.getElementById(name), fresh = page.getElementById(name);
      for (const details of old.querySelectorAll("details[id]")) {
        const same = fresh.querySelector("#" + CSS.escape(details.id));
        if (same) same.open = details.open;
      }
      old.replaceChildren(...[...fresh.childNodes].map(node => document.adoptNode(node)));
    }
    const again = focused && document.getElementById(focused);
    if (again && document.activeElement !== again) again.focus();
    shape = page.getElementById("connection").dataset.shape;
  };
  const poll = async () => {
    clearTimeout(timer);
    if (busy || over || document.hidden) return;
    busy = true;
    try {
      const reply = await ask("/operator/state", tag ? {"If-None-Match": tag} : {});
      if (reply.status === 403) {
        over = true;
        say("signed out: load the page again to sign in", true);
        return;
      }
      if (reply.status !== 304) {
        if (!reply.ok) throw new Error("refused");
        const state = await reply.json();
        if (state.shape !== shape) await renew();
        show(state);
        tag = reply.headers.get("ETag") || "";
      }
      say("live", false);
      asOf.textContent = `, ${new Date().toISOString().slice(11, 19)} UTC`;
    } catch (error) {
      say("connection lost, trying again", true);
    } finally {
      busy = false;
      if (!over) timer = setTimeout(poll, every);
    }
  };
  document.addEventListener("visibilitychange", poll);
  poll();
})();

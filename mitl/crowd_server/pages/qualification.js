"use strict";
// A test without it can be taken and sent all the same; it keeps answers and says early what the server would refuse.
(() => {
  const form = document.getElementById("test"), timer = document.getElementById("timer"), send = document.getElementById("send");
  let changed = false;
  timer.addEventListener("over", () => {
    send.disabled = true;
    changed = false;
  });
  const check = formRules(form);

  // Answers survive a reload, in this browser. Storage can be switched off, so a failure is silent.
  const attempt = action => { try { return action(); } catch (error) { return null; } };
  const key = "mitl-draft:test-" + form.dataset.request, version = form.elements.version.value;
  const entries = () => [...new FormData(form)].filter(([name]) => name !== "version");
  const keep = () => attempt(() => localStorage.setItem(key, JSON.stringify({at: Date.now(), version, fields: entries()})));
  const restore = fields => {
    for (const input of form.querySelectorAll("input[name^=q], textarea, select")) {
      const values = fields.filter(([name]) => name === input.name).map(([, value]) => value);
      if (input.type === "radio" || input.type === "checkbox") input.checked = values.includes(input.value);
      else if (values.length) input.value = values[0];
    }
  };
  const kept = attempt(() => JSON.parse(localStorage.getItem(key)));
  // A page that came back with its problems already holds the newest answers.
  if (kept && kept.version === version && !form.querySelector(".problem")) attempt(() => restore(kept.fields));
  check();
  form.addEventListener("input", () => { changed = true; check(); keep(); });
  form.addEventListener("submit", () => {
    changed = false;
    // After the browser has taken the form, so that the button's state cannot keep it from going.
    setTimeout(() => { send.disabled = true; });
  });
  addEventListener("pageshow", event => { if (event.persisted) location.reload(); });
  // A reload keeps the answers, so there is nothing to warn about unless they could not be kept.
  addEventListener("beforeunload", event => { if (changed && !attempt(() => localStorage.getItem(key))) event.preventDefault(); });
})();

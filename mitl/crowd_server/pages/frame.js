"use strict";
// Runs first in a page that was written for Mechanical Turk. Scripts may make or change its forms at any time, so they
// are bound when they are sent; and what such a page expects of its window, but a frame without an origin lacks, is here.
(() => {
  const {submit, assignment} = document.currentScript.dataset, preview = assignment === "ASSIGNMENT_ID_NOT_AVAILABLE";
  const named = action => /externalsubmit\/*$/i.test(action.trim().split(/[?#]/)[0]);
  const nowhere = action => /^(#[^]*|about:blank|javascript:[^]*)?$/i.test(action.trim());
  const actionOf = form => form.getAttribute("action") || "";
  // A form without an address is the HIT's own only where no other form names MTurk's.
  const answers = (form, action = actionOf(form)) => (form.getAttribute("method") || "").toLowerCase() !== "dialog" &&
    (named(action) || nowhere(action) && ![...document.forms].some(other => other !== form && named(actionOf(other))));
  const bind = form => {
    tell({type: "mitl-sent"});
    form.setAttribute("action", submit);
    form.setAttribute("method", "post");
    form.removeAttribute("target");
    if (form.enctype === "text/plain") form.enctype = "application/x-www-form-urlencoded";
  };

  const sending = event => {
    const form = event.target, button = event.submitter;
    if (!(form instanceof HTMLFormElement)) return;
    if (preview) event.preventDefault();
    else if (answers(form, button && button.getAttribute("formaction") || actionOf(form))) {
      bind(form);
      if (button) for (const name of ["formaction", "formmethod", "formtarget", "formenctype"]) button.removeAttribute(name);
    } else if (nowhere(actionOf(form))) event.preventDefault(); // it would load the page again, and lose what was entered
  };
  // First, for pages that stop the event on its way; and last, for those that change the form meanwhile.
  addEventListener("submit", sending, true);
  addEventListener("submit", sending);
  const send = HTMLFormElement.prototype.submit;
  HTMLFormElement.prototype.submit = function () {
    if (preview) return;
    if (answers(this)) bind(this);
    send.call(this);
  };
  addEventListener("formdata", event => {
    if (answers(event.target)) event.formData.set("assignmentId", assignment);
  }, true);

  // Without an origin there is no storage, and a page that asks for it would end there.
  const storage = () => {
    const kept = new Map();
    return {
      get length() { return kept.size; },
      key: index => [...kept.keys()][index] ?? null,
      getItem: name => kept.get(String(name)) ?? null,
      setItem: (name, value) => { kept.set(String(name), String(value)); },
      removeItem: name => { kept.delete(String(name)); },
      clear: () => kept.clear(),
    };
  };
  for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, {value: storage()});
  Object.defineProperty(document, "cookie", {get: () => "", set: () => {}});
  // Browsers let no frame of another origin ask or tell by their own dialogs: unseen, it would seem that nothing happens.
  window.alert = text => {
    const dialog = document.createElement("dialog"), told = document.createElement("p"), close = document.createElement("button");
    told.textContent = text;
    told.style.whiteSpace = "pre-wrap";
    close.textContent = "OK";
    close.onclick = () => dialog.close();
    dialog.append(told, close);
    dialog.onclose = () => dialog.remove();
    (document.body || document.documentElement).append(dialog);
    dialog.showModal();
  };
  window.confirm = () => true;

  const FIELDS = "input, select, textarea, crowd-input, crowd-text-area, crowd-checkbox, crowd-radio-button, crowd-slider, crowd-classifier, crowd-image-classifier";
  const UNKEPT = ["hidden", "password", "file", "submit", "button", "reset", "image"];
  const fields = () => [...document.querySelectorAll(FIELDS)].filter(field => !UNKEPT.includes(field.type) && keyOf(field));
  const keyOf = field => field.getAttribute("name") || field.id;
  const isChoice = field => field.type === "radio" || field.type === "checkbox";
  const valuesOf = field => {
    if ("draft" in field) return field.draft;
    if (isChoice(field)) return field.checked ? [field.value] : [];
    return field.type === "select-multiple" ? [...field.selectedOptions].map(option => option.value) : [field.value];
  };
  const setValues = (field, values) => {
    const before = JSON.stringify(valuesOf(field));
    if (isChoice(field)) field.checked = values.includes(field.value);
    else if ("draft" in field) field.draft = values.splice(0, values.length);
    else if (field.type === "select-multiple") for (const option of field.options) option.selected = values.includes(option.value);
    else if (values.length) field.value = values.shift();
    if (JSON.stringify(valuesOf(field)) === before) return;
    for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, {bubbles: true}));
  };

  const disable = () => {
    for (const form of document.forms) {
      if (!answers(form)) continue;
      for (const field of [...form.elements, ...form.querySelectorAll("crowd-button[form-action=submit], crowd-button[type=submit]")]) {
        if (!["button", "fieldset"].includes(field.type) || field.localName === "crowd-button") field.disabled = true;
      }
    }
  };
  const touched = new Set(), tell = message => parent.postMessage(message, location.origin);
  let heard = false, restoring = false;
  // Not before the draft came: what is kept replaces it.
  const keep = event => {
    if (restoring) return;
    if (event && (event.isTrusted || event.target.shadowRoot)) touched.add(keyOf(event.target));
    if (heard && touched.size) tell({type: "mitl-draft", fields: fields().flatMap(field => valuesOf(field).map(value => [keyOf(field), String(value)]))});
  };
  addEventListener("message", event => {
    const {type, fields: kept} = event.data || {};
    if (event.source !== parent || event.origin !== location.origin || type !== "mitl-restore" || heard) return;
    heard = restoring = true;
    const values = new Map();
    for (const [name, value] of kept || []) values.set(name, [...(values.get(name) || []), value]);
    if (kept) for (const field of fields()) if (!touched.has(keyOf(field))) setValues(field, values.get(keyOf(field)) || []);
    restoring = false;
    keep();
  });
  // Said until it is heard: on a slow line the page around may start to listen only after this one is here.
  const ask = () => {
    if (heard) return;
    tell({type: "mitl-ready"});
    setTimeout(ask, 500);
  };
  // After the page's own start, and after the crowd elements have taken shape.
  addEventListener("DOMContentLoaded", () => setTimeout(() => {
    if (preview) {
      disable();
      new MutationObserver(disable).observe(document.documentElement, {childList: true, subtree: true});
    } else if (parent !== window) {
      for (const type of ["input", "change"]) addEventListener(type, keep, true);
      addEventListener("load", () => tell({type: "mitl-shown"}));
      ask();
    }
  }));
})();

"use strict";
// The crowd elements that pages for Mechanical Turk use most, written from scratch after their documentation: same names,
// attributes and answers, made of the browser's own controls.
(() => {
  if (customElements.get("crowd-form")) return;

  const STYLE = `
    :host { display: block; margin: .5em 0; font: inherit; }
    :host([hidden]), [hidden] { display: none !important; }
    :host(crowd-button), :host(crowd-checkbox), :host(crowd-radio-button) { display: inline-block; }
    :host(crowd-checkbox), :host(crowd-radio-button) { padding: .25em; cursor: pointer; }
    :host([aria-disabled=true]) { opacity: .6; cursor: default; }
    :host(:focus-visible), :focus-visible { outline: 3px solid #1a5fb4; outline-offset: 2px; }
    .mark { display: inline-grid; place-content: center; width: 1.1em; height: 1.1em; margin-inline-end: .5em; border: 2px solid #555; border-radius: .2em; font-size: .9em; line-height: 1; vertical-align: text-bottom; }
    :host(crowd-radio-button) .mark { border-radius: 50%; }
    :host([aria-checked=true]) .mark { border-color: #1a5fb4; background: #1a5fb4; color: #fff; }
    input[type=text], input:not([type=radio], [type=range]), textarea { box-sizing: border-box; width: 100%; padding: .5em; border: 1px solid #6b6b6b; border-radius: .3em; font: inherit; }
    label.above { display: block; margin-bottom: .25em; }
    input[type=range] { width: min(30em, 80%); vertical-align: middle; }
    output { display: inline-block; min-width: 3em; margin-inline-start: .5em; }
    button, a.button { display: inline-block; min-height: 2.6em; padding: .4em 1.2em; border: 1px solid #6b6b6b; border-radius: .3em; background: #fff; color: #1a1a1a; font: inherit; text-decoration: none; cursor: pointer; }
    button.primary { border-color: #1a5fb4; background: #1a5fb4; color: #fff; }
    button.link, button.icon { border-color: transparent; text-decoration: underline; }
    button:disabled { border-color: #ccc; background: #e6e6e6; color: #595959; cursor: default; }
    fieldset { margin: .5em 0; padding: .5em 1em; border: 1px solid #bbb; border-radius: .3em; }
    fieldset label { display: block; padding: .4em 0; cursor: pointer; }
    legend { font-weight: bold; }
    summary { cursor: pointer; padding: .3em 0; }
    img { display: block; max-width: 100%; max-height: 70vh; }
    .error { margin: .25em 0 0; color: #a51d2d; }
    .title { margin: .6em 0 .2em; font-weight: bold; }`;

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const slot = (name = "") => make("slot", {name});
  const styled = (host, options, ...children) => host.attachShadow({mode: "open", ...options}).append(make("style", {textContent: STYLE}), ...children);
  const told = host => { for (const type of ["input", "change"]) host.dispatchEvent(new Event(type, {bubbles: true})); };
  const number = (text, otherwise) => text === null || text.trim() === "" || isNaN(text) ? otherwise : Number(text);

  // A control that belongs to a form: `control` within its shadow does the work, attributes are carried over to it.
  class Field extends HTMLElement {
    static formAssociated = true;
    static observedAttributes = ["allowed-pattern", "aria-label", "categories", "checked", "disabled", "error-message", "header", "label", "max", "max-length", "min", "min-length", "placeholder", "required", "rows", "src", "step", "type", "value"];
    constructor() {
      super();
      this.internals = this.attachInternals();
    }
    connectedCallback() {
      for (const name of ["value", "checked", "disabled"]) {  // set by a script before the element had its shape
        if (!Object.hasOwn(this, name)) continue;
        const value = this[name];
        delete this[name];
        this[name] = value;
      }
      this.refresh();
    }
    attributeChangedCallback() { if (this.isConnected) this.refresh(); }
    formDisabledCallback() { this.refresh(); }
    get form() { return this.internals.form; }
    get name() { return this.getAttribute("name") || ""; }
    get disabled() { return this.hasAttribute("disabled"); }
    set disabled(off) { this.toggleAttribute("disabled", Boolean(off)); }
    get isOff() { return this.matches(":disabled"); }
    get required() { return this.hasAttribute("required"); }
    get labelText() {
      const outer = [...this.internals.labels].map(label => label.textContent.trim()).join(" ");
      return this.getAttribute("aria-label") || outer || this.getAttribute("placeholder") || this.name;
    }
    checkValidity() { return this.internals.checkValidity(); }
    reportValidity() { return this.internals.reportValidity(); }
  }

  class TextField extends Field {
    constructor() {
      super();
      this.dirty = false;
      this.control = make(this.constructor.control, {id: "control"});
      this.caption = make("label", {htmlFor: "control", className: "above"});
      this.counter = make("output", {hidden: true});
      this.error = make("p", {id: "error", className: "error", hidden: true});
      styled(this, {delegatesFocus: true}, this.caption, this.control, this.counter, this.error);
      this.control.addEventListener("beforeinput", event => {
        const allowed = this.hasAttribute("auto-validate") && this.getAttribute("allowed-pattern");
        if (allowed && event.data && ![...event.data].every(letter => new RegExp(allowed).test(letter))) event.preventDefault();
      });
      this.control.addEventListener("input", () => { this.dirty = true; this.judge(); });
      this.control.addEventListener("change", () => { this.showError(); this.dispatchEvent(new Event("change", {bubbles: true})); });
      this.addEventListener("invalid", () => this.showError());
      this.control.addEventListener("keydown", event => {
        // Not for the Enter that takes a word of an input method.
        if (event.key === "Enter" && event.keyCode !== 229 && this.control.localName === "input" && this.form) this.form.requestSubmit();
      });
    }
    connectedCallback() {
      super.connectedCallback();
      if (this.hasAttribute("auto-focus")) this.control.focus();
    }
    refresh() {
      const {control} = this, carry = (from, to) => {
        const value = this.getAttribute(from);
        if (value === null) control.removeAttribute(to);
        else control.setAttribute(to, value);
      };
      if (control.localName === "input") control.type = this.getAttribute("type") || "text";
      for (const name of ["placeholder", "min", "max", "step", "rows"]) carry(name, name);
      carry("max-length", "maxlength");
      carry("min-length", "minlength");
      control.required = this.required;
      control.disabled = this.isOff;
      this.caption.textContent = this.getAttribute("label") || "";
      this.caption.hidden = !this.caption.textContent;
      if (this.caption.hidden) control.setAttribute("aria-label", this.labelText);
      else control.removeAttribute("aria-label");
      if (!this.dirty) control.value = this.getAttribute("value") || "";
      this.judge();
    }
    judge() {
      const {control} = this;
      this.internals.setFormValue(control.value);
      if (control.validity.valid) this.internals.setValidity({});
      else this.internals.setValidity(control.validity, this.getAttribute("error-message") || control.validationMessage, control);
      this.counter.hidden = !this.hasAttribute("char-counter");
      this.counter.textContent = String(control.value.length);
      if (control.validity.valid) this.showError();
    }
    showError() {
      const message = this.internals.validity.valid ? "" : this.internals.validationMessage;
      this.error.textContent = message;
      this.error.hidden = !message;
      this.control.setAttribute("aria-invalid", String(Boolean(message)));
      if (message) this.control.setAttribute("aria-describedby", "error");
      else this.control.removeAttribute("aria-describedby");
    }
    get type() { return "text"; }
    get value() { return this.control.value; }
    set value(text) {
      this.dirty = true;
      this.control.value = text ?? "";
      this.judge();
    }
    formResetCallback() {
      this.dirty = false;
      this.refresh();
    }
  }
  class Input extends TextField {
    static control = "input";
    get answer() { return this.value || undefined; }  // as documented: what was left empty is not in the answer
  }
  class TextArea extends TextField {
    static control = "textarea";
    get answer() { return this.value; }
  }

  class Slider extends Field {
    constructor() {
      super();
      this.touched = false;
      this.control = make("input", {type: "range"});
      this.shown = make("output");
      styled(this, {delegatesFocus: true}, this.control, this.shown);
      // Left where it stands is an answer too, once somebody looked at it: with the pointer or a key that moves it.
      for (const type of ["input", "pointerdown", "keydown"]) this.control.addEventListener(type, event => {
        if (event.key !== "Tab") this.touched = true;
        this.judge();
      });
      this.control.addEventListener("change", () => this.dispatchEvent(new Event("change", {bubbles: true})));
    }
    refresh() {
      const {control} = this;
      control.min = number(this.getAttribute("min"), 0);
      control.max = number(this.getAttribute("max"), 100);
      control.step = number(this.getAttribute("step"), 1);
      control.disabled = this.isOff;
      control.setAttribute("aria-label", this.labelText || this.getAttribute("label") || "");
      if (!this.touched) control.value = number(this.getAttribute("value"), Number(control.min));
      this.judge();
    }
    judge() {
      this.internals.setFormValue(this.control.value);
      this.shown.textContent = this.control.value;
      const missing = this.required && !this.touched && !this.hasAttribute("value");
      this.internals.setValidity(missing ? {valueMissing: true} : {}, missing ? "Please choose a value." : "", this.control);
    }
    get type() { return "range"; }
    get value() { return Number(this.control.value); }
    set value(value) {
      this.touched = true;
      this.control.value = value;
      this.judge();
    }
    get draft() { return this.touched ? [this.control.value] : []; }
    set draft(values) { if (values.length) this.value = values[0]; }
    get answer() { return this.value; }
    formResetCallback() {
      this.touched = false;
      this.refresh();
    }
  }

  // A box or a round button with whatever stands within it as its label.
  class Toggle extends Field {
    constructor() {
      super();
      this.isChecked = null;
      this.mark = make("span", {className: "mark"});
      this.mark.setAttribute("aria-hidden", "true");
      styled(this, {}, this.mark, slot());
      this.addEventListener("click", event => {
        if (!event.target.closest("a, button, input, select, textarea, summary")) this.toggle();
      });
      this.addEventListener("keydown", event => {
        if (event.target !== this || event.key !== " ") return;
        event.preventDefault();
        this.toggle();
      });
    }
    refresh() {
      const on = this.checked;
      this.setAttribute("role", this.type);
      this.setAttribute("aria-checked", String(on));
      this.setAttribute("aria-disabled", String(this.isOff));
      if (!this.textContent.trim() && !this.hasAttribute("aria-label") && !this.hasAttribute("aria-labelledby")) this.setAttribute("aria-label", this.labelText);
      this.mark.textContent = on ? (this.type === "radio" ? "●" : "✓") : "";
      this.internals.setFormValue(on ? this.value : null);
      this.place();
      const missing = this.isMissing;
      this.internals.setValidity(missing ? {valueMissing: true} : {}, missing ? this.constructor.missing : "", this.mark);
    }
    place() {
      if (this.isOff) this.removeAttribute("tabindex");
      else this.tabIndex = 0;
    }
    toggle() {
      if (this.isOff || this.isKept) return;
      this.checked = !this.checked;
      told(this);
    }
    get isKept() { return false; }
    get isMissing() { return this.required && !this.checked; }
    get checked() { return this.isChecked ?? this.hasAttribute("checked"); }
    set checked(on) {
      this.isChecked = Boolean(on);
      this.refresh();
    }
    get value() { return this.getAttribute("value") ?? "on"; }
    set value(text) { this.setAttribute("value", text); }
    formResetCallback() {
      this.isChecked = null;
      this.refresh();
    }
  }
  class Checkbox extends Toggle {
    static missing = "Please check this box.";
    get type() { return "checkbox"; }
  }
  class RadioButton extends Toggle {
    static missing = "Please choose one of these.";
    constructor() {
      super();
      this.addEventListener("keydown", event => {
        const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key], own = this.peers.filter(peer => !peer.isOff);
        if (!step || event.target !== this || own.length < 2) return;
        event.preventDefault();
        const next = own[(own.indexOf(this) + step + own.length) % own.length];
        if (!next.checked) next.toggle();
        next.focus();
      });
    }
    get type() { return "radio"; }
    get group() { return this.closest("crowd-radio-group"); }
    get peers() { return this.group ? [...this.group.querySelectorAll("crowd-radio-button")] : [this]; }
    get isKept() { return this.checked && this.group !== null; }
    get isMissing() {
      const {peers} = this, first = peers[0] === this;
      const required = peers.some(peer => peer.required) || (this.group !== null && this.group.hasAttribute("required"));
      return first && required && !peers.some(peer => peer.checked);
    }
    get checked() { return super.checked; }
    set checked(on) {
      if (on) for (const peer of this.peers) if (peer !== this && peer.checked) peer.isChecked = false;
      this.isChecked = Boolean(on);
      for (const peer of this.peers) if (customElements.get(peer.localName) && peer.refresh) peer.refresh();
    }
    place() {
      // One stop of the tab key for a group, at what is chosen or at the first.
      const open = this.peers.filter(peer => !peer.matches(":disabled")), stop = open.find(peer => peer.checked) || open[0];
      for (const peer of this.peers) {
        if (peer.matches(":disabled")) peer.removeAttribute("tabindex");
        else peer.tabIndex = peer === stop ? 0 : -1;
      }
    }
  }
  class RadioGroup extends HTMLElement {
    connectedCallback() { if (!this.hasAttribute("role")) this.setAttribute("role", "radiogroup"); }
    get value() { return ([...this.querySelectorAll("crowd-radio-button")].find(button => button.checked) || {}).value; }
  }

  class Button extends HTMLElement {
    static observedAttributes = ["disabled", "form-action", "href", "loading", "type", "variant"];
    connectedCallback() {
      if (!this.shadowRoot) {
        this.control = this.hasAttribute("href") ? make("a", {className: "button", target: "_blank", rel: "noopener"}, slot()) : make("button", {type: "button"}, slot());
        styled(this, {delegatesFocus: true}, this.control);
        this.addEventListener("click", () => this.act());
      }
      this.refresh();
    }
    attributeChangedCallback() { if (this.control) this.refresh(); }
    refresh() {
      const {control} = this, variant = this.getAttribute("variant") || "";
      if (control.localName === "a") control.href = this.getAttribute("href");
      else {
        control.disabled = this.disabled || this.hasAttribute("loading");
        control.className = ["primary", "link", "icon"].includes(variant) ? variant : "";
      }
      if (!this.textContent.trim()) control.setAttribute("aria-label", this.getAttribute("aria-label") || this.getAttribute("icon") || "Button");
    }
    act() {
      const action = (this.getAttribute("form-action") || this.getAttribute("type") || "").toLowerCase(), form = this.closest("form");
      if (!form || this.disabled || this.hasAttribute("loading")) return;
      if (action === "submit") form.requestSubmit();
      else if (action === "reset") form.reset();
    }
    get type() { return "button"; }
    get disabled() { return this.hasAttribute("disabled"); }
    set disabled(off) { this.toggleAttribute("disabled", Boolean(off)); }
  }

  const categoriesOf = text => {
    try {
      const names = JSON.parse(text);
      if (Array.isArray(names)) return names.map(String);
    } catch (error) { /* the documentation itself writes them with single quotes */ }
    return [...text.matchAll(/'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/g)].map(found => (found[1] ?? found[2]).replace(/\\(.)/g, "$1"));
  };
  const PLACES = {"classification-target": "target", "full-instructions": "full", "short-instructions": "short", "worker-comment": "comment"};

  class Classifier extends Field {
    constructor() {
      super();
      this.names = "";
      this.heading = make("legend");
      this.choices = make("fieldset", {}, this.heading);
      this.remark = make("textarea", {rows: 3});
      this.opener = make("summary");
      this.comment = make("details", {hidden: true}, this.opener, make("label", {}, slot("comment"), this.remark));
      styled(this, {delegatesFocus: true}, slot("short"), slot("full"), slot("target"), slot(), ...this.extra(), this.choices, this.comment);
      this.choices.addEventListener("change", () => { this.judge(); told(this); });
      this.remark.addEventListener("change", () => told(this));
      new MutationObserver(() => this.arrange()).observe(this, {childList: true});
    }
    extra() { return []; }
    connectedCallback() {
      this.arrange();
      super.connectedCallback();
    }
    arrange() {
      for (const child of this.children) if (PLACES[child.localName]) child.slot = PLACES[child.localName];
      const wanted = this.querySelector("worker-comment");
      this.comment.hidden = !wanted;
      if (!wanted) return;
      this.opener.textContent = wanted.getAttribute("link-text") || "Add a comment";
      this.remark.placeholder = wanted.getAttribute("placeholder") || "";
      this.remark.setAttribute("aria-label", wanted.getAttribute("header") || "Add a comment");
    }
    refresh() {
      const names = this.getAttribute("categories") || "[]";
      if (names !== this.names) {
        this.names = names;
        const labels = categoriesOf(names).map(name => make("label", {}, make("input", {type: "radio", name: "category", value: name}), ` ${name}`));
        this.choices.replaceChildren(this.heading, ...labels);
      }
      this.heading.textContent = this.getAttribute("header") || "Choose a category";
      this.choices.disabled = this.remark.disabled = this.isOff;
      this.judge();
    }
    judge() {
      const {label} = this;
      this.internals.setFormValue(label ?? null);
      const first = this.choices.querySelector("input"), missing = label === undefined;
      if (missing && first) this.internals.setValidity({valueMissing: true}, "Please choose a category.", first);
      else this.internals.setValidity({});
    }
    get label() { return (this.choices.querySelector("input:checked") || {}).value; }
    get answer() {
      const {label} = this, workerComment = this.remark.value;
      return label === undefined ? undefined : {label, ...(workerComment && {workerComment})};
    }
    get value() { return this.answer; }
    get type() { return "choice"; }
    get draft() { return this.label === undefined ? [] : [this.label, this.remark.value]; }
    set draft([label, remark = ""]) {
      for (const input of this.choices.querySelectorAll("input")) input.checked = input.value === label;
      this.remark.value = remark;
      this.judge();
    }
    formResetCallback() { this.draft = []; }
  }
  class ImageClassifier extends Classifier {
    extra() { return [this.image = make("img")]; }
    refresh() {
      super.refresh();
      const src = this.getAttribute("src");
      if (src && this.image.getAttribute("src") !== src) this.image.src = src;
      this.image.alt = this.getAttribute("alt") || "The image to classify";
    }
  }

  // Parts that only show something: at once, or behind a line that opens them.
  const part = (title, folded) => class extends HTMLElement {
    connectedCallback() {
      if (this.shadowRoot) return;
      const text = this.getAttribute("header") || this.getAttribute("link-text") || title;
      if (folded) styled(this, {}, make("details", {}, make("summary", {textContent: text}), slot()));
      else styled(this, {}, ...(text ? [make("p", {className: "title", textContent: text})] : []), slot());
    }
  };

  class Form extends HTMLElement {
    connectedCallback() {
      if (this.form) return;
      this.form = make("form", {method: "post"});
      this.form.setAttribute("action", "/mturk/externalSubmit");
      this.form.append(...this.childNodes);
      this.append(this.form);
      this.form.addEventListener("formdata", event => this.pack(event.formData));
      const buttons = "crowd-button[form-action=submit], crowd-button[type=submit], button:not([type=button], [type=reset]), input[type=submit], input[type=image]";
      if (!this.querySelector(buttons)) {
        const button = make("crowd-button", {textContent: "Submit"});
        button.setAttribute("form-action", "submit");
        button.setAttribute("variant", "primary");
        this.form.append(button);
      }
    }
    submit() { this.form.requestSubmit(); }
    reset() { this.form.reset(); }
    checkValidity() { return this.form.checkValidity(); }
    reportValidity() { return this.form.reportValidity(); }
    get elements() { return this.form.elements; }

    // All fields become one, as on Mechanical Turk.
    pack(data) {
      const answer = this.answer();
      for (const name of new Set(data.keys())) if (name !== "assignmentId") data.delete(name);
      if (this.getAttribute("answer-format") !== "flatten-objects") {
        data.set("taskAnswers", JSON.stringify([answer]));
        return;
      }
      for (const [name, value] of Object.entries(answer)) {
        if (value === null || typeof value !== "object" || Array.isArray(value)) data.set(name, Array.isArray(value) ? JSON.stringify(value) : value);
        else for (const [key, leaf] of Object.entries(value)) data.set(`${name}.${key}`, leaf);
      }
    }
    answer() {
      const answers = new Map();
      for (const field of this.form.elements) {
        const name = field.getAttribute("name"), {type} = field;
        if (!name || name === "assignmentId" || !("value" in field) || field.matches(":disabled") || ["submit", "button", "reset", "output"].includes(type)) continue;
        const earlier = answers.get(name);
        if (type === "radio" || type === "checkbox") {
          answers.set(name, {...(typeof earlier === "object" ? earlier : {}), [field.value]: field.checked});
          continue;
        }
        let value = "answer" in field ? field.answer : field.value;
        if (type === "select-multiple") value = [...field.selectedOptions].map(option => option.value);
        if (value === undefined) continue;
        // Nothing that was entered is lost where a name stands twice.
        answers.set(name, earlier === undefined ? value : [earlier, value].flat());
      }
      return Object.fromEntries([...answers].sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0)));
    }
  }

  // Once the page is read: only then are an element's children there.
  const define = () => {
    document.head.append(make("style", {textContent: "crowd-form, crowd-radio-group, worker-comment { display: block; }"}));
    const elements = {
      "crowd-form": Form, "crowd-radio-group": RadioGroup, "crowd-radio-button": RadioButton, "crowd-checkbox": Checkbox,
      "crowd-input": Input, "crowd-text-area": TextArea, "crowd-slider": Slider, "crowd-classifier": Classifier,
      "crowd-image-classifier": ImageClassifier, "crowd-button": Button, "crowd-instructions": part("Click for instructions", true),
      "full-instructions": part("Full instructions", true), "short-instructions": part("", false), "classification-target": part("", false),
      "short-summary": part("Summary", false), "detailed-instructions": part("Detailed instructions", false),
      "positive-example": part("Good example", false), "negative-example": part("Bad example", false),
    };
    for (const [name, element] of Object.entries(elements)) if (!customElements.get(name)) customElements.define(name, element);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", define);
  else define();
})();

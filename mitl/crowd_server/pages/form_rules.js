"use strict";
// Of forms of a QuestionForm: says early what the server would refuse. Returns what looks at all answers.
const formRules = form => {
  // Patterns are the requester's; one that this browser cannot read holds nobody up.
  const rules = [];
  for (const input of form.querySelectorAll("[data-patterns]")) {
    const {patterns, lowest = -Infinity, highest = Infinity} = input.dataset;
    const tests = JSON.parse(patterns).flatMap(({regex, flags, message}) => {
      try { return [{test: new RegExp(regex, flags), message}]; } catch (error) { return []; }
    });
    tests.push({test: {test: text => !(Number(text) < lowest)}, message: `Please write a number of at least ${lowest}.`});
    tests.push({test: {test: text => !(Number(text) > highest)}, message: `Please write a number of at most ${highest}.`});
    rules.push(() => input.setCustomValidity((input.value && tests.find(({test}) => !test.test(input.value)) || {message: ""}).message));
  }
  for (const group of form.querySelectorAll("fieldset[data-most]")) {
    const boxes = [...group.querySelectorAll("input[type=checkbox]")];
    if (!boxes.length) continue;
    const fewest = Number(group.dataset.fewest), most = Number(group.dataset.most), required = group.dataset.required === "1";
    rules.push(() => {
      const count = boxes.filter(box => box.checked).length;
      let message = "";
      if (count > most) message = `Please choose at most ${most}.`;
      else if (count < fewest && (count || required)) message = `Please choose at least ${fewest}.`;
      boxes[0].setCustomValidity(message);
    });
  }
  for (const text of form.querySelectorAll("input[name$=_other]")) {
    const mark = document.getElementById(text.name.replace("_other", "_else")), least = Math.max(text.minLength, 0);
    if (!mark) {
      // Beside a list a text counts by itself.
      const group = text.closest("fieldset"), list = group.querySelector("select"), required = group.dataset.required === "1";
      rules.push(() => {
        const count = !!list.value + !!text.value.trim();
        list.setCustomValidity(count > 1 ? "Please choose one answer only." : required && !count ? "Please choose an answer." : "");
      });
      continue;
    }
    // What was typed before this script came chooses, too.
    if (text.value !== text.defaultValue && !text.closest("fieldset").querySelector("input:checked")) mark.checked = true;
    // Not where a draft comes back, in which something else may be chosen. Who keeps drafts is told of the mark, too.
    text.addEventListener("input", event => {
      if (!event.isTrusted || !text.value || mark.checked) return;
      mark.checked = true;
      mark.dispatchEvent(new Event("change", {bubbles: true}));
    });
    // What was typed and then not chosen is not looked at.
    rules.push(() => {
      text.minLength = mark.checked ? least : 0;
      if (!mark.checked) text.setCustomValidity("");
    });
  }
  return () => rules.forEach(rule => rule());
};

// What pages for Mechanical Turk expect under this name: the address's values, and a form bound by them.
function turkGetParam(name, defaultValue) {
  for (const pair of location.search.slice(1).split("&")) {
    const at = pair.indexOf("=");
    // As it stands in the address: pages decode it themselves.
    if (at >= 0 && decodeURIComponent(pair.slice(0, at)) === name) return pair.slice(at + 1);
  }
  return defaultValue;
}

function decode(text) {
  return decodeURIComponent(text.replace(/\+/g, " "));
}

function turkGetSubmitToHost() {
  const host = decode(turkGetParam("turkSubmitTo", ""));
  return /^(https?:)?\/\//.test(host) ? host : "https://www.mturk.com";
}

function turkSetAssignmentID(formName = "mturk_form", buttonName = "submitButton") {
  const form = document.getElementById(formName) || document.forms[formName];
  const button = document.getElementById(buttonName) || (form && form.querySelector("[type=submit], button:not([type])"));
  const assignment = decode(turkGetParam("assignmentId", ""));
  let field = document.getElementById("assignmentId");
  if (!field && form) {
    field = document.createElement("input");
    Object.assign(field, {type: "hidden", id: "assignmentId", name: "assignmentId"});
    form.append(field);
  }
  if (field) field.value = assignment;
  if (button && assignment === "ASSIGNMENT_ID_NOT_AVAILABLE") {
    const text = "Accept the HIT to submit it";
    button.disabled = true;
    if (button.localName === "input") button.value = text;
    else button.textContent = text;
  }
  if (form) {
    form.setAttribute("action", turkGetSubmitToHost() + "/mturk/externalSubmit");
    form.setAttribute("method", "post");
  }
}

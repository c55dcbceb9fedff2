// What the pages do beyond being read: run and break claims, copy, filter, check. No library, no other host.
"use strict";

const at = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// The answer, or an error in the words of the server; one of our own where nobody answers.
async function ask(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The atlas does not answer. Is “vade atlas” still running?");
  }
  if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
  return answer;
}

const valueOf = (c) => (c.type === "checkbox" ? (c.checked ? "True" : "False") : c.dataset.positions ? c.dataset.positions.split(" ")[c.value] : c.value);
for (const c of all("[data-knob]")) c.dataset.default ??= valueOf(c);

// Controls that do not stand at their defaults, and what they say as arguments of a call.
const moved = (form) => all("[data-knob]", form).filter((c) => valueOf(c) !== c.dataset.default);
const call = (form) => moved(form).map((c) => `${c.dataset.knob}=${python(c)}`).join(", ");
function python(c) {
  const text = valueOf(c);
  if ("foil" in c.dataset) return `claim.foils[${text}].knobs["${c.dataset.knob}"]`;
  if (!/^(-?[\d.]+(e[-+]?\d+)?j?|-?inf|True|False|None|[([].*)$/.test(text)) return JSON.stringify(text);
  return text.replace(/\binf\b/g, 'float("inf")');
}

// What scrolls sideways can be reached by keyboard, and what does not is no stop for it.
function reach(within) {
  for (const box of all("p.short, .wide, .canvas, .body, .source, .foil p, .erratum p, dd, pre", within)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("resize", () => reach(document));
document.addEventListener("toggle", ({ target }) => reach(target), true);
reach(document);

for (const form of all("form.ask")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button"), place = form.querySelector(".outcome");
    button.disabled = true;
    place.textContent = "Running …";
    try {
      const body = new URLSearchParams(new FormData(form));
      place.innerHTML = await (await ask(form.action, { method: "POST", body })).text();
      reach(place);
    } catch (error) {
      place.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  });
}

for (const button of all("[data-copy]")) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    const form = button.closest("form[data-claim]");
    let text = button.dataset.copy;
    if (form) {
      const given = [form.elements.seed.value, call(form)].filter(Boolean).join(", ");
      text = `from vademecum.claims import select\n\n(claim,) = select("${form.dataset.claim}")\nprint(claim.run(${given}))`;
    }
    await navigator.clipboard.writeText(text).then(() => (button.textContent = "Copied"), () => prompt("Copy:", text));
    setTimeout(() => (button.textContent = words), 1500);
  });
}

const filter = at("errata-filter");
filter?.addEventListener("change", () => {
  const wanted = Object.entries(Object.fromEntries(new FormData(filter))).filter(([, value]) => value);
  for (const card of all(".erratum")) card.hidden = !wanted.every(([name, value]) => card.dataset[name] === value);
  at("errata-count").textContent = `${all(".erratum:not([hidden])").length} errata`;
});

// A statement that the address names opens, and so does whatever it is in.
function openTarget() {
  let place = at(decodeURIComponent(location.hash.slice(1)));
  if (!place) return;
  for (let outer = place; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
  place.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
if (matchMedia("(max-width: 60rem)").matches) all(".contents > details").forEach((contents) => (contents.open = false));

// What a run has found out, put into the page as it stands.
async function renew(places) {
  const fresh = new DOMParser().parseFromString(await (await ask(location.pathname)).text(), "text/html");
  for (const id of places) at(id).replaceWith(fresh.getElementById(id));
}

function inWords(state) {
  if (!state.total || !(state.running || state.done || state.stopped)) return "";
  const tally = Object.entries(state.tally).map(([verdict, n]) => `${n} ${n > 1 && verdict === "holds" ? "hold" : verdict}`).join(", ");
  const failed = state.failed.length ? ` Not holding: ${state.failed.join(", ")}.` : "";
  const how = state.running ? " so far" : state.stopped ? ", then stopped" : "";
  return `${state.done} of ${state.total} claims${how}${tally ? `: ${tally}` : ""}.${failed}`;
}

const checks = at("checks");
async function watch() {
  const was = checks.dataset.running;
  try {
    const state = await (await ask(checks.dataset.address)).json();
    checks.dataset.running = state.running;
    at("checks-bar").hidden = at("stop-checks").hidden = !state.running;
    at("run-checks").disabled = state.running;
    at("checks-bar").max = state.total;
    at("checks-bar").value = state.done;
    at("checks-text").textContent = inWords(state);
    if (state.running) setTimeout(watch, 500);
    else if (was === "true") await renew(["summary", "cards"]);
  } catch (error) {
    at("checks-text").textContent = error.message;
  }
}
if (checks) {
  const order = (method) => async () => {
    try {
      await ask(checks.dataset.address, { method });
      if (method === "POST") watch();
    } catch (error) {
      at("checks-text").textContent = error.message;
    }
  };
  at("run-checks").addEventListener("click", order("POST"));
  at("stop-checks").addEventListener("click", order("DELETE"));
  watch();
}

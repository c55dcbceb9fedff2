// What the pages do beyond being read: search, filter, run checks. No library, no other host.
"use strict";

const at = (id) => document.getElementById(id);

function search() {
  const box = at("search");
  if (!box) return;
  const rows = [...at("results").children];
  const show = () => {
    const words = box.value.toLowerCase().replace(/[$`\\{}]/g, "").split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of rows) {
      row.hidden = !words.length || !words.every((word) => row.dataset.text.includes(word));
      found += !row.hidden;
    }
    at("results").hidden = !found;
    at("search-count").textContent = words.length ? `${found} found` : "";
  };
  box.addEventListener("input", show);
  show();
}

function filterErrata() {
  const form = at("errata-filter");
  if (!form) return;
  const rows = [...document.querySelectorAll("#errata tbody tr")];
  const show = () => {
    const { room, weight } = Object.fromEntries(new FormData(form));
    let found = 0;
    for (const row of rows) {
      row.hidden = Boolean((room && row.dataset.room !== room) || (weight && row.dataset.weight !== weight));
      found += !row.hidden;
    }
    at("errata-count").textContent = `${found} errata`;
  };
  form.addEventListener("change", show);
  show();
}

async function ask(address, options) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
  return answer;
}

// What a run has found out, put into the page as it stands.
async function renew(places) {
  const fresh = new DOMParser().parseFromString(await (await ask(location.pathname)).text(), "text/html");
  for (const id of places) at(id).replaceWith(fresh.getElementById(id));
}

function runChecks() {
  const place = at("checks");
  if (!place) return;
  const address = place.dataset.address;
  const words = (state) => {
    const tally = Object.entries(state.tally).map(([verdict, n]) => `${n} ${n > 1 && verdict === "holds" ? "hold" : verdict}`).join(", ");
    const failed = state.failed.length ? ` Not holding: ${state.failed.join(", ")}.` : "";
    return state.total && (state.running || state.done)
      ? `${state.done} of ${state.total} claims${state.running ? " so far" : ""}: ${tally || "starting"}.${failed}` : "";
  };
  let watching = false;
  const watch = async () => {
    if (watching) return;
    watching = true;
    try {
      let wasRunning = false;
      for (;;) {
        const state = await (await ask(address)).json();
        at("checks-bar").hidden = at("stop-checks").hidden = !state.running;
        at("run-checks").disabled = state.running;
        at("checks-bar").max = state.total;
        at("checks-bar").value = state.done;
        at("checks-text").textContent = words(state);
        if (!state.running) {
          if (wasRunning) await renew(["summary", "cards"]);
          break;
        }
        wasRunning = true;
        await new Promise((wake) => setTimeout(wake, 500));
      }
    } catch (error) {
      at("checks-text").textContent = `The atlas does not answer: ${error.message}`;
    } finally {
      watching = false;
    }
  };
  at("run-checks").addEventListener("click", async () => {
    at("checks-bar").value = 0;
    at("checks-text").textContent = "Starting …";
    await ask(address, { method: "POST" });
    watch();
  });
  at("stop-checks").addEventListener("click", () => ask(address, { method: "DELETE" }));
  watch();
}

function runTrials() {
  for (const form of document.querySelectorAll("form.trial")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button"), place = form.querySelector(".outcome");
      button.disabled = true;
      place.textContent = "Running …";
      try {
        const body = new URLSearchParams(new FormData(form));
        place.innerHTML = await (await ask(form.action, { method: "POST", body })).text();
      } catch (error) {
        place.textContent = error.message;
      } finally {
        button.disabled = false;
      }
    });
  }
}

// A written page has no sliders that answer: each control has a few positions, one control moves at a time.
function moveStills() {
  for (const still of document.querySelectorAll(".still")) {
    const picture = still.querySelector(".wide img");
    still.addEventListener("change", ({ target }) => {
      for (const first of still.querySelectorAll("[data-first]")) {
        if (first.name !== target.name) first.checked = true;
      }
      picture.src = target.value;
      picture.alt = target.dataset.alt;
    });
  }
}

// A frame as tall as what is in it; the notebook's own page scrolls inside an element of its own.
function fitFrames() {
  for (const frame of document.querySelectorAll(".live iframe")) {
    const fit = () => {
      const inner = frame.contentDocument && frame.contentDocument.getElementById("App");
      if (!inner) return;
      const tall = [...inner.children].reduce((sum, part) => sum + part.offsetHeight, 0);
      if (tall > 100 && Math.abs(frame.clientHeight - tall - 8) > 8) frame.style.height = `${tall + 10}px`;
    };
    setInterval(fit, 500);
  }
}

search();
filterErrata();
runChecks();
runTrials();
fitFrames();
moveStills();

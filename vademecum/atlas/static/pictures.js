// Pictures that move: a control fetches the drawing for its position, and the latest one wins.
"use strict";

for (const figure of document.querySelectorAll(".picture")) {
  const form = figure.querySelector("form"), image = figure.querySelector("img"), note = figure.querySelector(".note");
  const play = figure.querySelector(".play"), prefix = figure.dataset.name && `${figure.dataset.name}.`;
  const controls = all("[data-knob]", form), plays = controls.find((c) => c.dataset.knob === figure.dataset.plays);
  const files = figure.dataset.files && JSON.parse(figure.dataset.files);
  const link = figure.querySelector(".download");
  let request = new AbortController();

  const state = () => Object.fromEntries(controls.map((c) => [c.dataset.knob, valueOf(c)]));
  const placesOf = (c) => c.dataset.positions?.split(" ") ?? [...(c.options ?? [])].map((option) => option.value);

  // As files there are drawings at a few positions: the one that differs least from what is asked for.
  function nearest(knobs) {
    const far = ([drawn]) => controls.reduce((sum, c) => {
      const name = c.dataset.knob, places = placesOf(c);
      if (!c.dataset.positions) return sum + 2 * (String(drawn[name]) !== knobs[name]);
      return sum + Math.abs(places.indexOf(String(drawn[name])) - places.indexOf(knobs[name])) / places.length;
    }, 0);
    return files.reduce((best, file) => (far(file) < far(best) ? file : best));
  }

  function address(knobs) {
    if (files) return nearest(knobs)[1];
    const moved = controls.filter((c) => knobs[c.dataset.knob] !== c.dataset.default).map((c) => [c.dataset.knob, knobs[c.dataset.knob]]);
    return figure.dataset.address + (moved.length ? `?${new URLSearchParams(moved)}` : "");
  }

  function set(control, text) {
    if (control.type === "checkbox") control.checked = text === "True";
    else if (placesOf(control).includes(text)) control.value = control.dataset.positions ? placesOf(control).indexOf(text) : text;
    label(control);
  }

  function label(control) {
    if (!control.dataset.positions) return;
    const words = `${valueOf(control)} ${control.dataset.unit}`.trim();
    control.setAttribute("aria-valuetext", words);
    control.parentElement.querySelector("output").textContent = words;
  }

  // The address of the page holds what was moved, so that it can be sent to somebody.
  function remember() {
    const query = new URLSearchParams(location.search);
    for (const c of controls) query.delete(prefix + c.dataset.knob);
    for (const c of moved(form)) query.set(prefix + c.dataset.knob, valueOf(c));
    history.replaceState(null, "", `${location.pathname}${query.size ? "?" + query : ""}${location.hash}`);
  }

  async function show() {
    request.abort();
    request = new AbortController();
    const { signal } = request, knobs = state(), drawing = address(knobs);
    const slow = setTimeout(() => (note.textContent = "Drawing …"), 600);
    try {
      if (!files) await (await ask(drawing, { signal })).arrayBuffer();
      if (signal.aborted) return;
      image.loading = "eager";
      image.src = drawing;
      const drawn = files ? nearest(knobs)[0] : knobs;
      image.alt = `${figure.dataset.title}: ${Object.entries(drawn).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ")}`;
      const copy = figure.querySelector("[data-copy]");
      copy.dataset.copy = copy.dataset.copy.replace(/\n\n(\w+)\([^]*$/, `\n\n$1(${call(form)})`);
      link.href = drawing;
      const other = files && Object.entries(drawn).some(([name, value]) => String(value) !== knobs[name]);
      note.textContent = other ? "The nearest position that was drawn; “vade atlas” draws them all." : "";
      await image.decode().catch(() => {});
      if (!playing) remember();
      return true;
    } catch (error) {
      if (error.name !== "AbortError") note.textContent = error.message;
    } finally {
      clearTimeout(slow);
    }
  }

  // What a control will show next is fetched before it is asked for, if there is nothing else to do.
  function ahead(control, steps, signal) {
    const places = placesOf(control), at = places.indexOf(valueOf(control));
    for (const next of steps.map((step) => places[at + step])) {
      if (next === undefined || files) continue;
      const knobs = { ...state(), [control.dataset.knob]: next };
      fetch(address(knobs), { signal, priority: "low", headers: { purpose: "prefetch" } }).catch(() => {});
    }
  }

  form.addEventListener("input", async ({ target }) => {
    stop();
    label(target);
    await show();
    const { signal } = request;
    setTimeout(() => signal.aborted || ahead(target, [1, -1], signal), 400);
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  let playing = 0;
  function stop() {
    playing = 0;
    if (play) play.textContent = "Play";
  }

  async function run() {
    const own = (playing = Math.random());
    const places = placesOf(plays).filter((place) => !files || files.some(([drawn]) => String(drawn[figure.dataset.plays]) === place));
    const start = places.indexOf(valueOf(plays));
    play.textContent = "Pause";
    for (let i = start === places.length - 1 ? 0 : start + 1; i < places.length; i++) {
      set(plays, places[i]);
      const pause = new Promise((wake) => setTimeout(wake, Math.max(150, 5000 / places.length)));
      const shown = await show();
      if (playing === own) ahead(plays, [1]);
      await pause;
      if (playing !== own || !shown) break;
    }
    if (playing === own) (stop(), remember());
  }
  play?.addEventListener("click", () => (playing ? (stop(), remember()) : run()));

  // An address that holds knobs shows that state.
  const asked = new URLSearchParams(location.search);
  const given = controls.filter((c) => prefix && asked.has(prefix + c.dataset.knob));
  for (const control of given) set(control, asked.get(prefix + control.dataset.knob));
  if (given.length) show();
  else if ("playing" in figure.dataset && !matchMedia("(prefers-reduced-motion: reduce)").matches) run();
}

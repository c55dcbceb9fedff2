// The search on every page: words in any order, forgiving of slips, by keyboard.
"use strict";
{
  const box = at("search"), panel = box.parentElement, list = at("results"), count = at("search-count");
  const found = panel.querySelector(".found"), most = 40;
  const greek = Object.fromEntries([..."αβγδεζηθικλμνξοπρστυφχψω"].map((letter, i) => [letter,
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi psi omega".split(" ")[i]]));
  let entries, vocabulary, chosen = -1;

  const fetched = () => new Promise((done, fail) => {  // a page that is a file cannot fetch, but it can have scripts
    if (panel.dataset.index.endsWith(".json")) return ask(panel.dataset.index).then((answer) => answer.json()).then(done, fail);
    const failed = () => fail(new Error("The index cannot be read."));
    document.head.append(Object.assign(document.createElement("script"), { src: panel.dataset.index, onload: () => done(window.vademecumIndex), onerror: failed }));
  });

  let loading;
  const load = () => (loading ??= fetched().then((found) => {
    [entries, vocabulary] = [found, new Map()];
    entries.forEach((entry, i) => entry.words.split(" ").forEach((word) => {
      if (!vocabulary.has(word)) vocabulary.set(word, []);
      vocabulary.get(word).push(i);
    }));
  }).catch((error) => { loading = undefined; throw error; }));

  // Whether two words differ by at most so many letters put in, left out, changed or swapped.
  function near(a, b, slips) {
    if (Math.abs(a.length - b.length) > slips) return false;
    let before, last = [], row = Array.from({ length: b.length + 1 }, (_, j) => j);
    for (let i = 1; i <= a.length; i++) {
      [before, last, row] = [last, row, [i]];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      if (Math.min(...row) > slips) return false;
    }
    return row[b.length] <= slips;
  }

  // Entries that have the word, with a weight: the word itself, its beginning, some part of it, or nearly it.
  function having(word) {
    const weights = new Map();
    const add = (known, weight) => vocabulary.get(known).forEach((i) => weights.set(i, Math.max(weight, weights.get(i) ?? 0)));
    for (const known of vocabulary.keys()) {
      if (known === word) add(known, 4);
      else if (known.startsWith(word)) add(known, 3);
      else if (word.length > 2 && known.includes(word)) add(known, 2);
    }
    const slips = word.length >= 8 ? 2 : word.length >= 4 ? 1 : 0;
    if (!weights.size && slips) for (const known of vocabulary.keys()) if (near(word, known, slips)) add(known, 1);
    return weights;
  }

  function look(text) {
    const words = text.toLowerCase().replace(/[α-ω]/g, (letter) => ` ${greek[letter] ?? ""} `).match(/[a-e]-\d+|[\p{L}\d]+/gu) ?? [];
    if (!words.length) return [];
    const each = words.map(having);
    const titles = (i) => words.filter((word) => entries[i].title.toLowerCase().includes(word)).length;
    const score = (i) => each.reduce((sum, weights) => sum + weights.get(i), 0) + 2 * titles(i);
    const hits = [...each[0].keys()].filter((i) => each.every((weights) => weights.has(i)));
    return hits.map((i) => [score(i), i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).map(([, i]) => entries[i]);
  }

  function choose(i) {
    const rows = [...list.children];
    chosen = rows.length ? (i + rows.length) % rows.length : -1;
    rows.forEach((row, j) => row.setAttribute("aria-selected", j === chosen));
    if (chosen >= 0) rows[chosen].scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", chosen >= 0 ? rows[chosen].id : "");
  }

  function open(shown) {
    found.hidden = !shown;
    box.setAttribute("aria-expanded", Boolean(shown && list.children.length));
  }

  async function show() {
    try {
      await load();
    } catch (error) {
      count.textContent = error.message;
      return open(true);
    }
    const hits = look(box.value);
    list.replaceChildren(...hits.slice(0, most).map((entry, i) => {
      const row = Object.assign(document.createElement("li"), { id: `result-${i}`, role: "option" });
      const link = Object.assign(document.createElement("a"), { href: panel.dataset.root + entry.to, textContent: entry.title, tabIndex: -1 });
      const kind = Object.assign(document.createElement("span"), { className: "tag", textContent: entry.kind });
      row.append(kind, " ", link, " ", Object.assign(document.createElement("small"), { textContent: entry.more }));
      row.addEventListener("click", ({ target }) => target === link || link.click());
      return row;
    }));
    count.textContent = box.value.trim() ? `${hits.length} found${hits.length > most ? `, the best ${most} of them below` : ""}` : "";
    open(box.value.trim());
    choose(hits.length ? 0 : -1);
  }

  box.addEventListener("focus", () => load().catch(() => {}));
  box.addEventListener("input", show);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Enter" && chosen >= 0) list.children[chosen].querySelector("a").click();
    else if (event.key === "Escape") { box.value = ""; open(false); box.blur(); }
    else return;
    event.preventDefault();
  });
  addEventListener("click", (event) => panel.contains(event.target) || open(false));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.target.closest("input, select, textarea, dialog")) return;
    event.preventDefault();
    box.focus();
  });
}

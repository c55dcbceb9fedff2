// Projector mode: one picture or statement at a time, in large type; arrows go on, Escape ends.
"use strict";
{
  const button = at("projector");
  const stage = Object.assign(document.createElement("dialog"), { className: "stage" });
  stage.setAttribute("aria-label", "Projector");
  let slides = all(".picture, .statement, .erratum, .alone"), current = -1, mark, wasOpen;

  function leave() {
    if (current < 0) return;
    mark.replaceWith(slides[current]);
    slides[current].open = wasOpen;
    current = -1;
  }

  // The element itself moves onto the stage, so that its controls work there, and then back to its place.
  function enter(i) {
    if (i < 0 || i >= slides.length) return;
    leave();
    current = i;
    mark = document.createComment("on stage");
    wasOpen = slides[i].open;
    slides[i].replaceWith(mark);
    slides[i].open = true;
    stage.querySelector(".slide").replaceChildren(slides[i]);
    stage.querySelector(".note").textContent = `${i + 1} of ${slides.length}`;
    stage.scrollTop = 0;
  }

  function begin() {
    slides = all(".picture, .statement, .erratum:not([hidden]), .alone");
    if (!slides.length) return;
    const inSight = slides.findIndex((slide) => slide.offsetParent && slide.getBoundingClientRect().bottom > 80);
    const named = slides.findIndex((slide) => slide.id && `#${slide.id}` === location.hash);
    stage.showModal();
    enter(Math.max(named >= 0 ? named : inSight, 0));
  }

  if (slides.length) {
    const step = (words, by) => {
      const made = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: words, autofocus: by > 0 });
      made.addEventListener("click", () => (by ? enter(current + by) : stage.close()));
      return made;
    };
    const bar = Object.assign(document.createElement("p"), { className: "tools" });
    bar.append(step("← Back", -1), step("On →", 1), Object.assign(document.createElement("span"), { className: "note" }), step("End", 0));
    stage.append(bar, Object.assign(document.createElement("div"), { className: "slide" }));
    document.body.append(stage);
    stage.addEventListener("close", () => {
      const place = slides[current];
      leave();
      place?.scrollIntoView({ block: "nearest" });
    });
    button.hidden = false;
    button.addEventListener("click", begin);
    addEventListener("keydown", (event) => {
      const typing = event.target.closest("input, select, textarea");
      if (event.key === "p" && !typing && !event.ctrlKey && !event.metaKey) stage.open ? stage.close() : begin();
      else if (stage.open && !typing && ["ArrowRight", "PageDown"].includes(event.key)) enter(current + 1);
      else if (stage.open && !typing && ["ArrowLeft", "PageUp"].includes(event.key)) enter(current - 1);
    });
  }
}

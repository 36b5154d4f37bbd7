// The trace explorer: steps through recorded tokens, filters them by source, and links to one (#t=17, or
// #trace=NAME&t=17). The page holds all that is shown; see gdlib/report/trace.py.
"use strict";

(function () {
  function element(name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  function asked() {
    const found = new URLSearchParams(location.hash.slice(1));
    return { name: found.get("trace"), token: Number.parseInt(found.get("t"), 10) };
  }

  function explore(root) {
    const which = root.querySelector(".gd-trace-which select");
    const texts = [...root.querySelectorAll(".gd-recording")].map(recording);
    root.classList.add("gd-stepped");
    root.querySelector(".gd-trace-which").hidden = texts.length < 2;

    function recording(section, place) {
      const stream = section.querySelector(".gd-stream");
      const tokens = [...stream.querySelectorAll("[role=option]")];
      const detail = section.querySelector(".gd-detail");
      const record = JSON.parse(section.querySelector("script").textContent);
      const boxes = [...section.querySelectorAll("input")];
      let at = -1;
      for (const box of boxes) box.hidden = false;

      function shown(index) {
        return boxes.some((box) => box.checked && box.value === tokens[index].dataset.source);
      }

      // Tokens are numbered from 1, as readers count them.
      function link(index) {
        return (place ? "#trace=" + encodeURIComponent(section.dataset.name) + "&t=" : "#t=") + (index + 1);
      }

      function select(index, say) {
        if (at >= 0) tokens[at].setAttribute("aria-selected", "false");
        at = index;
        const token = tokens[at];
        token.setAttribute("aria-selected", "true");
        stream.setAttribute("aria-activedescendant", token.id);
        for (const other of tokens) {
          other.classList.toggle("gd-same", other.dataset.forward === token.dataset.forward);
        }
        const list = document.createElement("dl");
        for (const [name, value] of Object.entries(record.notes[at])) {
          list.append(element("dt", name), element("dd", value));
        }
        const anchor = element("a", "Link to this token");
        anchor.href = link(at);
        detail.replaceChildren(list, anchor);
        if (say) {
          history.replaceState(null, "", link(at));
          token.scrollIntoView({ block: "nearest", inline: "nearest" });
        }
      }

      // The next token in a direction that the filter shows; with byForward, the first of the next forward.
      function next(step, byForward) {
        const from = tokens[at] ? tokens[at].dataset.forward : null;
        for (let index = at + step; index >= 0 && index < tokens.length; index += step) {
          const begins = index === 0 || tokens[index - 1].dataset.forward !== tokens[index].dataset.forward;
          if (shown(index) && (!byForward || (tokens[index].dataset.forward !== from && begins))) return index;
        }
        return at;
      }

      function end(step) {
        const order = step > 0 ? tokens.keys() : [...tokens.keys()].reverse();
        for (const index of order) if (shown(index)) return index;
        return at;
      }

      stream.addEventListener("keydown", (event) => {
        const moves = {
          ArrowRight: () => next(1, false),
          ArrowLeft: () => next(-1, false),
          ArrowDown: () => next(1, true),
          ArrowUp: () => next(-1, true),
          Home: () => end(1),
          End: () => end(-1),
        };
        if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        const index = moves[event.key]();
        if (index >= 0) select(index, true);
      });
      stream.addEventListener("click", (event) => {
        const index = tokens.indexOf(event.target.closest("[role=option]"));
        if (index >= 0) select(index, true);
      });
      function filter() {
        tokens.forEach((token, index) => token.classList.toggle("gd-dim", !shown(index)));
      }
      for (const box of boxes) box.addEventListener("change", filter);
      select(0, false);
      return { section, select, filter, stream, count: tokens.length };
    }

    function open(name) {
      const chosen = texts.find((text) => text.section.dataset.name === name) || texts[0];
      for (const text of texts) text.section.hidden = text !== chosen;
      which.value = chosen.section.dataset.name;
      return chosen;
    }

    which.addEventListener("change", () => {
      const chosen = open(which.value);
      const place = texts.indexOf(chosen);
      history.replaceState(null, "", place ? "#trace=" + encodeURIComponent(which.value) : location.pathname + location.search);
    });

    function follow() {
      const { name, token } = asked();
      if (!name && !token) return;
      const chosen = open(name);
      if (token >= 1 && token <= chosen.count) {
        chosen.select(token - 1, false);
        chosen.stream.scrollIntoView({ block: "center" });
        chosen.stream.focus({ preventScroll: true });
      }
    }

    window.addEventListener("hashchange", () => {
      if (!location.hash) open("").select(0, false);
      follow();
    });
    // Where a reader comes back to the page, the browser puts its boxes and lists as they were left, after this script.
    window.addEventListener("pageshow", () => {
      for (const text of texts) text.filter();
      if (!asked().name) open(asked().token ? "" : which.value);
    });
    open("");
    follow();
  }

  function begin() {
    document.querySelectorAll(".gd-trace").forEach(explore);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();

// Draws the figures that gdlib/report/live.py left in the page, in the colours of its theme; the static ones then stay
// for print alone. Without plotly or scripts nothing changes.
"use strict";

(function () {
  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--pst-color-text-base").trim() || "#000";
    const grid = style.getPropertyValue("--pst-color-border").trim() || "#ccc";
    const made = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    made.font = { ...layout.font, color: ink, family: getComputedStyle(document.body).fontFamily };
    made.dragmode = "zoom";
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      made[name] = { ...layout[name], gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
    }
    return made;
  }

  function draw(place) {
    const figure = JSON.parse(place.querySelector("script").textContent);
    const drawing = place.querySelector(".plotly-graph-div");
    const options = { displayModeBar: false, responsive: true };
    place.closest("figure").classList.add("gd-live");
    drawing.style.height = figure.layout.height + "px";
    const show = () => window.Plotly.react(drawing, figure.data, themed(figure.layout), options);
    show();
    new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  function begin() {
    if (window.Plotly) document.querySelectorAll(".gd-plotly").forEach(draw);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();

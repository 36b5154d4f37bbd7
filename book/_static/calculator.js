// "What will it cost me?": the fits of gdlib/report/calculator.py, evaluated in the page. Same arithmetic as `estimate`.
"use strict";

(function () {
  const both = (one, other) => (one === null || other === null ? null : Math.hypot(one, other));
  const around = (value, spread) =>
    spread === null ? [null, null] : [value * Math.exp(-spread), value * Math.exp(spread)];
  const tokensOf = (saved) => 1 / (1 - Math.min(Math.max(saved, 0), 0.95));

  function costOf(rows, width) {
    const { widths, cost } = rows;
    const last = widths.length - 1;
    if (last > 0 && width > widths[last]) {
      return cost[last] + ((width - widths[last]) * (cost[last] - cost[last - 1])) / (widths[last] - widths[last - 1]);
    }
    if (width <= widths[0]) return cost[0];
    const after = widths.findIndex((known) => known >= width);
    const part = (width - widths[after - 1]) / (widths[after] - widths[after - 1]);
    return cost[after - 1] + part * (cost[after] - cost[after - 1]);
  }

  function estimate(fit, settings) {
    const { mask, batch, draft, rows } = fit;
    const us =
      Math.exp(mask.kinds[settings.kind] + mask.slope * Math.log(settings.vocabulary)) * settings.batch ** batch.slope;
    const masks = [us, ...around(us, settings.batch === 1 ? mask.spread : both(mask.spread, batch.spread))];
    const saved = draft.kappa * settings.structural * settings.acceptance;
    const tokens = tokensOf(saved);
    const width = settings.batch * (1 + (tokens - 1) / settings.acceptance);
    const gain = (tokens * costOf(rows, settings.batch)) / costOf(rows, width);
    const beyond = [];
    if (settings.vocabulary < mask.vocabularies[0] || settings.vocabulary > mask.vocabularies[1]) beyond.push("vocabulary");
    if (settings.batch > batch.largest) beyond.push("batch");
    if (width > rows.widths[rows.widths.length - 1]) beyond.push("rows");
    return {
      mask_us: masks,
      mask_share: masks.map((m) => (m === null ? null : m / (m + 1000 * settings.forward_ms))),
      tokens: draft.spread === null
        ? [tokens, null, null]
        : [tokens, tokensOf(saved - draft.spread), tokensOf(saved + draft.spread)],
      gain: [gain, ...around(gain, draft.gain_spread)],
      beyond,
    };
  }

  function text([value, low, high], digits, unit = "", scale = 1) {
    const written = (number) =>
      (number * scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    if (low === null) return `${written(value)}${unit} (no error can be given)`;
    return `${written(value)}${unit} [${written(low)},\u00a0${written(high)}]`;
  }

  function calculate(form) {
    const fit = JSON.parse(form.querySelector("script").textContent);
    const beyond = form.querySelector(".gd-beyond");

    function settings() {
      const found = { kind: form.elements.kind.value };
      for (const input of form.querySelectorAll("input")) {
        if (!input.checkValidity()) {
          const label = input.closest("label").firstChild.textContent;
          const whole = input.validity.stepMismatch ? "a whole number from " : "";
          throw new RangeError(`${label}: ${whole}${input.min} to ${Number(input.max).toLocaleString("en")}, please.`);
        }
        found[input.name] = Number(input.value);
      }
      found.structural /= 100;
      found.acceptance /= 100;
      return found;
    }

    function update() {
      let found;
      try {
        found = estimate(fit, settings());
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        for (const output of form.querySelectorAll("output")) output.value = "–";
        beyond.textContent = error.message;
        return;
      }
      form.elements.mask_us.value = text(found.mask_us, 0, " µs");
      form.elements.mask_share.value = text(found.mask_share, 2, "%", 100);
      form.elements.tokens.value = text(found.tokens, 2);
      form.elements.gain.value = text(found.gain, 2);
      const { mask, batch, rows } = fit;
      const why = {
        vocabulary: `the vocabulary (runs: ${[...new Set(mask.vocabularies)].map((n) => n.toLocaleString("en")).join(" to ")} tokens)`,
        batch: `the batch (runs: up to ${batch.largest})`,
        rows: `the rows of a forward (measured: up to ${rows.widths[rows.widths.length - 1]})`,
      };
      beyond.textContent = found.beyond.length
        ? `Beyond what the runs have seen, so take it with care: ${found.beyond.map((name) => why[name]).join("; ")}.`
        : "";
    }

    form.addEventListener("input", update);
    form.addEventListener("change", update); // of a list, some browsers tell this alone
    form.addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("pageshow", update); // fields that a browser fills in again when a reader comes back
    update();
  }

  function begin() {
    document.querySelectorAll("form.gd-calculator").forEach(calculate);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();

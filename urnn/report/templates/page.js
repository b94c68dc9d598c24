"use strict";
(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const narrow = () => root.clientWidth < 560;
  const charts = [...document.querySelectorAll(".chart")];

  // Of plotly's buttons, one would upload a chart.
  const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "" };

  // plotly.js travels compressed: a fifth of its size
  async function unpack() {
    const text = document.getElementById("plotly").textContent.trim();
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function smooth(values, width) {
    const half = (width - 1) / 2;
    return values.map((value, i) => {
      if (value === null) return null;
      const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
      return near.reduce((sum, v) => sum + v, 0) / near.length;
    });
  }

  // Each select offers what exists under those before it; a choice that is gone becomes the first one.
  function chosen(panel, traces) {
    const choice = {};
    for (const select of panel.querySelectorAll("select[data-key]")) {
      const key = select.dataset.key;
      if (key !== "kind") {
        const there = new Set(traces.filter((t) => matches(t.meta, choice)).map((t) => (t.meta || {})[key]));
        for (const option of select.options) {
          option.hidden = option.disabled = option.value !== "" && !there.has(option.value);
        }
        if (select.selectedOptions[0].disabled) {
          select.value = [...select.options].find((option) => !option.disabled).value;
        }
      }
      choice[key] = select.value;
    }
    return choice;
  }

  function matches(meta, choice) {
    return Object.entries(choice).every(([key, value]) => {
      const own = (meta || {})[key];
      return value === "" || own === undefined || own === value || (key === "kind" && own === "both");
    });
  }

  function draw(chart) {
    const { data, layout } = figures[chart.dataset.figure];
    const panel = chart.closest(".charted");
    const choice = chosen(panel, data);
    const search = (panel.querySelector("[data-search]")?.value || "").toLowerCase();
    const width = Number(panel.querySelector("[data-smooth]")?.value || 1);
    const seen = new Set();
    const traces = data.filter((t) => matches(t.meta, choice))
      .filter((t) => !search || !t.meta?.name || t.meta.name.toLowerCase().includes(search))
      .map((t) => {
        const edge = Boolean(t.meta?.edge);
        const showlegend = layout.showlegend !== false && !edge && !seen.has(t.legendgroup);
        if (t.legendgroup && !edge) seen.add(t.legendgroup);
        return { ...t, showlegend, y: width > 1 && t.meta?.name ? smooth(t.y, width) : t.y };
      });
    const empty = !traces.some((t) => t.meta?.kind !== "both");
    chart.hidden = empty;
    panel.querySelector(".empty").hidden = !empty;
    const lines = traces.filter((t) => t.showlegend).length;
    chart.style.height = narrow() && lines > 2 ? `calc(20rem + ${lines * 1.3}rem)` : "";
    if (!empty) Plotly.react(chart, traces, themed(layout, panel, traces), CONFIG);
  }

  function themed(layout, panel, traces) {
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = (own = {}) => ({
      ...own,
      gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--soft"), automargin: true,
      ...(typeof own.title === "string" ? { title: { text: own.title } } : {}),
    });
    const made = {
      ...layout,
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      font: { color: color("--ink"), family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11 : 13 },
      hoverlabel: { bgcolor: color("--panel"), bordercolor: color("--soft"), font: { color: color("--ink") } },
      margin: { l: 50, r: 12, t: 28, b: 50 },
      legend: narrow() ? { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom" } : { x: 1.01, y: 1 },
      modebar: { color: color("--soft"), activecolor: color("--accent"), bgcolor: "rgba(0,0,0,0)" },
    };
    const log = panel.querySelector("[data-log]");
    const range = traces[0].meta?.range;
    if (range) made.xaxis.range = range;
    if (log) made.yaxis.type = log.checked ? "log" : "linear";
    return made;
  }

  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  function label() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to the ${isDark() ? "light" : "dark"} theme`);
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    charts.forEach(draw);
  });
  label();

  for (const copy of document.querySelectorAll("[data-copy]")) {
    copy.addEventListener("click", async () => {
      const code = copy.parentElement.querySelector("code");
      let done = true;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        done = document.execCommand("copy");
      }
      copy.textContent = done ? "Copied" : "Select";
      document.getElementById("status").textContent = done ? "Copied" : "Select and copy by hand";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }

  await unpack();
  charts.forEach(draw);
  for (const panel of document.querySelectorAll(".charted")) {
    panel.addEventListener("input", (event) => {
      const output = event.target.parentElement.querySelector("output");
      if (output) output.textContent = event.target.value;
      panel.querySelectorAll(".chart").forEach(draw);
    });
  }
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 559px)"]) {
    matchMedia(query).addEventListener("change", () => { label(); charts.forEach(draw); });
  }
  root.dataset.ready = "";
})();

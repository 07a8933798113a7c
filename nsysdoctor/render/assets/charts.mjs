// Plotly figures in the page's colours: drawn when first seen, anew when the theme changes.

// Replaces every var(--name) in a figure by its value in the theme.
export function coloured(value, read) {
  if (typeof value === "string") {
    const match = /^var\((--[\w-]+)\)$/.exec(value);
    return match ? read(match[1]) || "#888888" : value;
  }
  if (Array.isArray(value)) return value.map((part) => coloured(part, read));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, read)]));
  }
  return value;
}

export function themed(layout, read, narrow) {
  const axis = { gridcolor: read("--line"), zerolinecolor: read("--line"), linecolor: read("--line"), automargin: true, tickfont: { size: 11 } };
  const merge = (own) => ({ ...axis, ...own, title: { ...(own?.title ?? {}), font: { size: 12 }, standoff: 8 } });
  return {
    ...layout,
    xaxis: merge(layout.xaxis),
    yaxis: merge(layout.yaxis),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: read("--ink") },
    hoverlabel: { bgcolor: read("--raised"), bordercolor: read("--line"), font: { color: read("--ink") }, align: "left", namelength: -1 },
    legend: { ...(layout.legend ?? {}), orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } },
    margin: { l: narrow ? 44 : 56, r: 12, t: layout.showlegend === false ? 10 : 34, b: 44 },
    autosize: true,
  };
}

function draw(plotly, place, chart, read, onPlace) {
  const data = coloured(chart.data, read);
  const layout = themed(coloured(chart.layout, read), read, place.clientWidth < 480);
  const options = { displaylogo: false, responsive: true, displayModeBar: false };
  return plotly.react(place, data, layout, options).then(() => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "1";
    place.on("plotly_click", ({ points }) => {
      const [point] = points;
      const trace = point?.data?.meta?.place;
      if (trace !== undefined) onPlace(point.customdata[0], point.customdata[1], trace);
    });
  });
}

// Runs plotly.js from its inert block, once.
function plotlyOf(source) {
  if (!window.Plotly) {
    const script = document.createElement("script");
    script.textContent = source.textContent;
    document.head.append(script);
  }
  return window.Plotly;
}

export function attachCharts(charts, source, read, onPlace) {
  const places = new Map();
  const drawAll = () => {
    for (const [place, chart] of places) draw(plotlyOf(source), place, chart, read, onPlace);
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      seen.unobserve(entry.target);
      const chart = charts.find((c) => c.name === entry.target.dataset.chart);
      places.set(entry.target, chart);
      draw(plotlyOf(source), entry.target, chart, read, onPlace);
    }
  }, { rootMargin: "400px" });
  for (const place of document.querySelectorAll("[data-chart]")) seen.observe(place);
  window.addEventListener("beforeprint", () => {
    for (const place of document.querySelectorAll("[data-chart]")) {
      places.set(place, charts.find((c) => c.name === place.dataset.chart));
    }
    drawAll();
  });
  return { redraw: () => places.size && drawAll() };
}

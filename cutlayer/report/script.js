"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
  const PRINT_WIDTH = 660; // of an A4 page within its margins

  const canvases = (root) => [...root.querySelectorAll(".canvas")].filter((one) => !one.closest("[hidden]"));

  function draw(root) {
    for (const canvas of canvases(root)) {
      if (canvas.classList.contains("js-plotly-plot")) {
        Plotly.Plots.resize(canvas);
      } else {
        const { data, layout } = figures[canvas.dataset.figure];
        Plotly.newPlot(canvas, data, layout, config);
      }
    }
  }

  function choose(key) {
    for (const run of document.querySelectorAll(".run")) run.hidden = run.id !== key;
    draw(document.getElementById(key));
  }

  const numeric = (text) => /^[-–]?[\d.,:]*$/.test(text.trim());
  const value = (text) => (text.includes(":") ? text.split(":").reduce((sum, part) => 60 * sum + +part, 0) : text === "–" ? -Infinity : +text);

  function align(table) {
    [...table.tHead.rows[0].cells].forEach((heading, place) => {
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[place]);
      if (cells.every((cell) => numeric(cell.textContent))) [heading, ...cells].forEach((cell) => cell.classList.add("number"));
    });
  }

  function sort(table, heading) {
    const place = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    const key = (row) => row.cells[place].textContent;
    const compare = heading.classList.contains("number") ? (a, b) => value(key(a)) - value(key(b)) : (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true });
    const rows = [...table.tBodies[0].rows].sort(compare);
    table.tBodies[0].append(...(down ? rows.reverse() : rows));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  }

  for (const table of document.querySelectorAll("table")) {
    align(table);
    if (table.classList.contains("sortable"))
      for (const heading of table.tHead.rows[0].cells) heading.firstChild.addEventListener("click", () => sort(table, heading));
  }
  const select = document.getElementById("run");
  if (select) select.addEventListener("change", () => choose(select.value));
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
    canvases(document).forEach((one) => Plotly.relayout(one, { width: PRINT_WIDTH }));
  });
  addEventListener("afterprint", () => canvases(document).forEach((one) => Plotly.relayout(one, { width: null, autosize: true })));
  draw(document);
})();

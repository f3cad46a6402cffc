/* Figures, downloads, sorting, copying, choosing verdicts. Without it everything can still be read. */

/* Vega draws each figure as wide as there is room, in the colours of the page, and anew when either changes. */
const themes = JSON.parse(document.getElementById("themes").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const LEAST = 270, LEAST_IMAGE = 130, AROUND = 86, BETWEEN = 24, MARGIN = 10, WORD_GAP = 0.25;

function fitted(spec, room) {
  const images = spec.concat.every((panel) => panel.name?.startsWith("image"));
  const least = images ? LEAST_IMAGE : LEAST;
  const columns = Math.max(1, Math.min(spec.columns, Math.floor((room + BETWEEN) / (least + BETWEEN))));
  const share = (room - BETWEEN * (columns - 1)) / columns;
  const chart = (panel) => {
    const width = share - AROUND;
    return { ...panel, width: Math.max(140, width), height: Math.min(240, Math.max(150, 0.62 * width)) };
  };
  const kinds = { image: imageWithin, text: wrapped };
  const scaled = (panel) => (kinds[panel.name?.replace(/\d+$/, "")] ?? chart)(panel, share - MARGIN);
  return { ...spec, columns, concat: spec.concat.map(scaled) };
}

function imageWithin(panel, room) {
  const factor = Math.min(1, room / panel.width);
  return { ...panel, width: factor * panel.width, height: factor * panel.height };
}

/* A strip of words in lines that have room; `coloured.py` wraps them for a sheet of paper. */
function wrapped(panel, room) {
  const ends = Object.fromEntries(["x", "y"].map((axis) => [axis, panel.layer[0].encoding[axis].scale.domain[1]]));
  const character = panel.width / ends.x, height = panel.height / ends.y;
  const most = Math.min(ends.x, Math.floor(room / character));
  let x = 0, line = 0;
  const values = panel.data.values.map((row) => {
    const wide = row.x2 - row.x;
    if (x > 0 && x + wide > most) [x, line] = [0, line + 1];
    const placed = { ...row, x, x2: x + wide, y: line };
    x += wide + WORD_GAP;
    return placed;
  });
  const within = (place, end) => ({ ...place, scale: { ...place.scale, domain: [0, end] } });
  const layer = panel.layer.map((each) => {
    const { x, y } = each.encoding;
    return { ...each, encoding: { ...each.encoding, x: within(x, most), y: within(y, line + 1) } };
  });
  return { ...panel, width: most * character, height: (line + 1) * height, data: { values }, layer };
}

async function draw(figure) {
  const place = figure.querySelector(".drawing"), room = Math.floor(figure.clientWidth);
  figure.spec ??= JSON.parse(figure.querySelector("script").textContent);
  figure.drawn = `${room} ${dark.matches}`;
  const options = { mode: "vega-lite", ast: true, actions: false, renderer: "svg" };
  const config = dark.matches ? themes.dark : themes.light;
  try {
    const made = await drawFigure(place, fitted(figure.spec, room), { ...options, config });
    figure.view?.finalize();
    figure.view = made.view;
    figure.classList.add("live");
  } catch (problem) {
    figure.classList.remove("live"); // the static drawing stays
    console.error(problem);
  }
}

const figures = [...document.querySelectorAll("figure.chart")];
const redraw = () => figures.filter((each) => each.drawn !== `${Math.floor(each.clientWidth)} ${dark.matches}`).map(draw);
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});
dark.addEventListener("change", redraw);
redraw();

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

/* A picture of the static drawing, three pixels for each of its points. */
function picture(image) {
  return new Promise((resolve, reject) => {
    const copy = new Image();
    copy.onerror = reject;
    copy.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 3 * copy.naturalWidth;
      canvas.height = 3 * copy.naturalHeight;
      const context = canvas.getContext("2d");
      context.fillStyle = "#ffffff";
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(copy, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png");
    };
    copy.src = image.src;
  });
}

for (const button of document.querySelectorAll("button[data-download]")) {
  const figure = button.closest("figure");
  const image = figure.querySelector(".static");
  button.addEventListener("click", async () => {
    const format = button.dataset.download;
    const name = `${figure.dataset.stem}.${format}`;
    if (format === "pdf") save(name, new Blob([bytes(figure.dataset.pdf)], { type: "application/pdf" }));
    if (format === "svg") save(name, new Blob([bytes(image.src.split(",")[1])], { type: "image/svg+xml" }));
    if (format === "png") save(name, await picture(image));
  });
}

/* Numbers before texts, or the other way round; nothing comes last in both. */
function compare(first, second, sign) {
  const [a, b] = [first, second].map((text) => (text.trim() === "" || text === "–" ? null : text));
  if (a === null || b === null) return (a === null) - (b === null);
  const [x, y] = [Number(a), Number(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return sign * (Number.isNaN(x) ? 1 : -1);
  if (!Number.isNaN(x)) return x === y ? 0 : sign * (x - y);
  return sign * a.localeCompare(b, undefined, { numeric: true });
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(text(a), text(b), down ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}

for (const block of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block.querySelector("code"));
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  block.append(button);
}

/* The counts of verdicts choose the rows of the table of claims. */
const choices = [...document.querySelectorAll("button[data-verdict]")];
for (const choice of choices) {
  choice.disabled = false;
  choice.addEventListener("click", () => {
    const chosen = choice.getAttribute("aria-pressed") === "true" ? null : choice.dataset.verdict;
    choices.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.verdict === chosen)));
    for (const body of document.querySelectorAll("#claims tbody")) {
      const rows = [...body.querySelectorAll("tr.claim")];
      rows.forEach((row) => (row.hidden = chosen !== null && row.dataset.verdict !== chosen));
      body.hidden = rows.every((row) => row.hidden);
    }
  });
}

/* Paper cannot be opened: what is folded is shown for printing; long tables are left out. */
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((each) => (each.open = true));
});
addEventListener("afterprint", () => opened.forEach((each) => (each.open = false)));

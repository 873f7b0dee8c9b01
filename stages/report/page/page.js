// Without this script the page shows all that it has. It adds sorting, filters, copying and the opening of what is linked.
"use strict";
(() => {
  const FILTERED = 8; // rows from which on a table has a filter

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.value;
    return number === undefined ? cell.textContent.trim() : Number(number);
  };

  const compare = (one, other) => {
    if (typeof one === typeof other) {
      return typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true });
    }
    return typeof one === "number" ? -1 : 1; // what is not known stands last
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const numbers = [...body.rows].some((row) => row.cells[column].dataset.value !== undefined);
        const down = before === null ? numbers : before === "ascending"; // of numbers the largest come first
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
        rows.sort((one, other) => (down ? -1 : 1) * compare(one[0], other[0]));
        body.append(...rows.map(([, row]) => row));
      });
    });
  };

  const filterable = (table) => {
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    input.type = "search";
    label.append("Rows with ", input);
    count.textContent = `${rows.length} rows`;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every((word) => texts[index].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = `${shown} of ${rows.length} rows`;
    });
    const bar = document.createElement("div");
    bar.className = "filter";
    bar.append(label, count);
    table.closest(".scroll").before(bar);
  };

  const copyable = (block) => {
    const text = block.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${text}`);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange(); // a browser that forbids it: the text is selected instead
        range.selectNodeContents(block.firstChild);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
      }
    });
    block.append(button);
  };

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView({ block: target.tagName === "TR" ? "center" : "start" });
  };

  document.querySelectorAll("table.data").forEach((table) => {
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) sortable(table);
    if (rows > FILTERED) filterable(table);
  });
  document.querySelectorAll("pre.command").forEach(copyable);
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open], .bulky)")];
    opened.forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((part) => (part.open = false)));
})();

"use strict";
// Sort a table by the column whose head is pressed: numbers as numbers, rows without a value always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", other === head ? way : "none"));
    const keyed = [...body.rows].map((row) => ({ row, key: row.cells[column].dataset.key }));
    const isNumeric = keyed.every(({ key }) => key === "" || Number.isFinite(Number(key)));
    const sign = way === "ascending" ? 1 : -1;
    keyed.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "");
      return sign * (isNumeric ? Number(a.key) - Number(b.key) : a.key.localeCompare(b.key));
    });
    body.append(...keyed.map(({ row }) => row));
    document.getElementById("sorted").textContent = `Sorted by ${head.textContent.trim()}, ${way}`;
  }));
}
// A row that is pointed at or focused stands out in the charts of its task, and the other way round.
for (const task of document.querySelectorAll("section.task")) {
  const parts = [...task.querySelectorAll("[data-row]")];
  const point = (event) => {
    const name = event.target.closest?.("[data-row]")?.dataset.row;
    task.classList.toggle("pointed", name !== undefined);
    parts.forEach((part) => part.classList.toggle("on", part.dataset.row === name));
  };
  for (const kind of ["mouseover", "focusin"]) task.addEventListener(kind, point);
  for (const kind of ["mouseleave", "focusout"]) task.addEventListener(kind, () => {
    task.classList.remove("pointed");
    parts.forEach((part) => part.classList.remove("on"));
  });
}
// A link to details opens them and everything they are folded in.
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", open);
open();

// SPDX-License-Identifier: Apache-2.0
// Tables are sorted by a click on a heading: numbers from the largest, words from A. Without this the page is whole.
'use strict';
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) continue;
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    head.tabIndex = 0;
    const sort = () => {
      const number = head.classList.contains('num');
      const was = head.getAttribute('aria-sort');
      const up = was ? was === 'descending' : !number;
      const key = (row) => {
        const cell = row.cells[column];
        if (!number) return cell.textContent.trim();
        return cell.dataset.v === undefined ? -Infinity : Number(cell.dataset.v);
      };
      const order = (a, b) => (number ? key(a) - key(b) || 0 : key(a).localeCompare(key(b), 'en', {numeric: true}));
      const rows = [...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
      heads.forEach((h) => h.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      body.append(...rows);
    };
    head.addEventListener('click', sort);
    head.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      sort();
    });
  });
}
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach((d) => (d.open = true)));

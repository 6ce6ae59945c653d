<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>
:root {
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  --page: #fbfbfa; --card: #ffffff; --text: #1c1f23; --muted: #5b636d; --grid: #b9c0c8; --line: #e3e6ea; --accent: #2456a6;
  --series-0: #2f6fb7; --series-1: #d1691b; --series-2: #2e8b57; --series-3: #b3365f; --series-4: #7a57b3;
  --series-5: #8a6d1d; --series-6: #16879a; --series-7: #777f88; --series-8: #c0392b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --text: #e6e9ed; --muted: #9aa4b0; --grid: #5a6470; --line: #2d333b; --accent: #83b1f2;
    --series-0: #6aa8ee; --series-1: #f0934e; --series-2: #63c48c; --series-3: #ee7fa3; --series-4: #b59bee;
    --series-5: #d3b35a; --series-6: #55c2d4; --series-7: #a5adb6; --series-8: #f2776b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 var(--font); }
main { max-width: 1120px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; margin: 0 0 4px; }
h2 { font-size: 1.15rem; margin: 36px 0 4px; }
p { margin: 4px 0 12px; max-width: 75ch; }
.muted, figcaption { color: var(--muted); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.tile, figure, .scroll, .note { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); gap: 16px; }
figure { margin: 0; padding: 12px; min-width: 0; max-width: 580px; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: 6px; }
.note { padding: 12px 14px; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .85em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: 5px 10px; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--muted); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:last-child td { border-bottom: 0; }
summary { cursor: pointer; padding: 8px 0; color: var(--accent); }
</style>
</head>
<body>
<main>
<h1>${title}</h1>
<p class="muted">${subtitle}</p>
<div class="tiles">
% for name, value in tiles.items():
<div class="tile"><b>${value}</b><span class="muted">${name}</span></div>
% endfor
</div>
% for section in sections:
<section>
<h2>${section.title}</h2>
<p>${section.text}</p>
  % if section.charts:
<div class="charts">
    % for chart, name, caption in section.charts:
<figure>${svg(chart, name) | n}<figcaption>${caption}</figcaption></figure>
    % endfor
</div>
  % endif
  % for made in section.tables:
    % if made.summary:
<details><summary>${made.summary}</summary>${table(made)}</details>
    % else:
${table(made)}
    % endif
  % endfor
  % for note in section.notes:
<p class="note">
    % for i, part in enumerate(note.split("`")):
${code(part) if i % 2 else part}\
    % endfor
</p>
  % endfor
</section>
% endfor
</main>
</body>
</html>
<%def name="code(text)"><code>${text}</code></%def>
<%def name="table(made)">
<div class="scroll"><table><thead><tr>
% for title, numeric in zip(made.titles, made.numeric):
<th${' class="number"' if numeric else "" | n}>${title}</th>\
% endfor
</tr></thead><tbody>
% for row in made.rows:
<tr>\
  % for value in row:
    % if isinstance(value, float):
<td class="number">${number(value)}</td>\
    % elif isinstance(value, int):
<td class="number">${f"{value:,}"}</td>\
    % elif isinstance(value, Code):
<td><code>${value}</code></td>\
    % else:
<td>${value}</td>\
    % endif
  % endfor

</tr>
% endfor
</tbody></table></div>
</%def>

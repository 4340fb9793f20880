"""The page's style sheet: light and dark, phone and desk, screen and paper.

Text has a contrast of at least 4.5 to 1 and marks of at least 3 to 1 with what is behind them, in
both themes; `tests/report/test_page.py` measures it.
"""

STYLE = """
:root { color-scheme: light dark; --back: #fff; --panel: #f4f6f9; --ink: #1c2127; --soft: #566070;
  --line: #d5dae1; --first: #1a63c4; --second: #b4530a; --third: #14713b; --right: 66 133 244;
  --wrong: 240 120 50; --good: #14713b; --bad: #a8321a; --link: #1457b0; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #14181d; --panel: #1e242b;
  --ink: #e7eaee; --soft: #a9b3bf; --line: #3a434e; --first: #7ab0ff; --second: #ffae66;
  --third: #5fd08d;
  --right: 48 108 220; --wrong: 208 88 24; --good: #5fd08d; --bad: #ff9b80; --link: #8fbcff; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 68rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--first); outline-offset: 2px; border-radius: 2px; }
.skip { position: absolute; left: -99rem; padding: .5rem 1rem; background: var(--back);
  z-index: 3; }
.skip:focus { left: 0; top: 0; }

nav { position: sticky; top: 0; z-index: 2; overflow-x: auto; background: var(--back);
  border-bottom: 1px solid var(--line); }
nav ul { display: flex; margin: 0; padding: 0 .5rem; list-style: none; }
nav a { display: block; padding: .65rem .5rem; color: var(--soft); font-size: .9375rem;
  text-decoration: none; white-space: nowrap; }
nav a:hover { color: var(--ink); text-decoration: underline; }

h1 { margin: .5rem 0 0; font-size: 1.6rem; line-height: 1.2; }
h2 { margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line);
  font-size: 1.3rem; line-height: 1.3; }
section:first-of-type h2 { margin-top: 1rem; padding: 0; border: 0; }
h3 { margin: 2rem 0 .25rem; font-size: 1.0625rem; }
p { margin: .5rem 0; max-width: 44rem; }
small, .soft { color: var(--soft); font-size: .875rem; }
small.good, .good { color: var(--good); } small.bad, .bad { color: var(--bad); }
code { font: .875rem/1.4 ui-monospace, monospace; }

.verdict { margin: 1.25rem 0; padding: .75rem 1rem; border-left: .375rem solid; border-radius: 4px;
  background: var(--panel); }
.verdict p { margin: 0; font-weight: 600; font-size: 1.125rem; }
.verdict ul { margin: .5rem 0 0; padding-left: 1.25rem; color: var(--ink); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0; }
.tiles div { padding: .75rem; border-radius: 6px; background: var(--panel); }
.tiles dd small { display: block; margin-top: .25rem; line-height: 1.35; }
.tiles dt { color: var(--soft); font-size: .875rem; line-height: 1.3; }
.tiles dd { margin: 0; } .tiles .value { font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.tiles .value, table { font-variant-numeric: tabular-nums; }
.terms { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .25rem 1rem;
  margin: .75rem 0; } .terms dt { color: var(--soft); } .terms dd { margin: 0; }

.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; }
th, td { padding: .3rem 0 .3rem 1.25rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; font-weight: normal; overflow-wrap: normal; }
td small, th small { display: block; white-space: nowrap; }
thead th { color: var(--soft); font-size: .875rem; line-height: 1.3; vertical-align: bottom; }
tr > :first-child { padding-left: 0; text-align: left; overflow-wrap: anywhere; min-width: 6rem;
  max-width: 22rem; }
.words th, .words td { text-align: left; overflow-wrap: anywhere; }
.words td { min-width: 7rem; }
.pair td:nth-child(2) { text-align: left; overflow-wrap: anywhere; min-width: 6rem; }
.pair th:nth-child(2) { text-align: left; }
.matrix { font-size: .875rem; }
.matrix th, .matrix td { padding: .25rem .4rem; border: 1px solid var(--back); }
.matrix td { min-width: 2.2rem; text-align: center; background: rgb(var(--wrong) / var(--s, 0)); }
.matrix td.right { background: rgb(var(--right) / var(--s, 0)); font-weight: 600; }
.matrix td.none { color: var(--soft); }
.matrix thead th { text-align: center; }
.matrix tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--back);
  padding-left: 0; min-width: 2rem; max-width: 7.5rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.turned thead bdi { display: inline-block; max-height: 8rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; writing-mode: vertical-rl;
  text-orientation: sideways; transform: rotate(180deg); }

details { margin: .25rem 0; } summary { padding: .4rem 0; color: var(--link); cursor: pointer; }
figure { margin: 0; } figcaption { margin-bottom: .35rem; font-size: .9375rem; line-height: 1.35; }
.figures { display: grid; gap: 1.25rem 2rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.figures figure { max-width: 33rem; } .figures > * { min-width: 0; }
.figures h3 { margin-top: 1rem; }
.plot svg { display: block; width: 100%; height: auto; }
.plot text { font-family: system-ui, sans-serif !important; }

.cards { display: grid; gap: .75rem; margin: .75rem 0; padding: 0; list-style: none; }
.gallery { grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
.files { grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
.cards > li { padding: .6rem; border-radius: 6px; background: var(--panel); font-size: .9375rem;
  line-height: 1.4; }
.gallery .frame { height: 9rem; margin-bottom: .5rem; }
.files > li { display: grid; grid-template-columns: 5rem 1fr; gap: .75rem; }
.frame { display: flex; align-items: center; justify-content: center; }
.files .frame { align-items: start; }
.frame img { max-height: 100%; object-fit: contain; }
.frame .none { padding: .75rem .25rem; border: 1px dashed var(--soft); border-radius: 4px;
  color: var(--soft); font-size: .8125rem; line-height: 1.2; text-align: center; width: 100%; }
.answer { display: flex; flex-wrap: wrap; justify-content: space-between; }
.answer strong { width: 100%; } .cards .name { margin-top: .25rem; line-height: 1.3; }
.cards p { margin: 0; } .cards code, .cards small { font-size: .8125rem; }
img { max-width: 100%; height: auto; } .tiny { image-rendering: pixelated; }
.samples { display: grid; gap: 1.25rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20.5rem), 1fr)); }
.samples figcaption { font-weight: 600; }
.pairs { display: flex; flex-wrap: wrap; gap: .4rem; margin-top: .25rem; }
.pairs > div { display: flex; flex-direction: column; gap: .25rem; max-width: 6rem; }

@media (max-width: 30rem) { th, td { padding-left: .75rem; font-size: .9375rem; }
  thead th, td small { font-size: .8125rem; } tr > :first-child { min-width: 5.75rem; }
  .terms { grid-template-columns: 1fr; gap: 0; } .terms dd { margin-bottom: .5rem; } }
@media (min-width: 40rem) { html { scroll-padding-top: 5.5rem; }
  nav ul { flex-wrap: wrap; } nav a { padding: .4rem .5rem; } }
@media (min-width: 80rem) { body { display: grid; grid-template-columns: 12.5rem 1fr; }
  html { scroll-padding-top: 1rem; }
  nav { height: 100vh; padding: 1rem .5rem; border: 0; border-right: 1px solid var(--line); }
  nav ul { flex-flow: column nowrap; } nav a { padding: .35rem .5rem; white-space: normal; }
  main { width: 100%; padding: 1rem 2rem 4rem; } }
@media print { :root { color-scheme: light; } nav, .skip { display: none; }
  body { display: block; font-size: 11pt; }
  main { max-width: none; padding: 0; } .scroll { overflow: visible; }
  figure, .cards > li, .tiles div, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; } }
"""

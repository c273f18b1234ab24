"""The style of a report: a light and a dark theme by what the reader's system says, one column on a phone, two where there is room.

Nothing is loaded: fonts are those of the system. Colours of series differ also for those who do not tell red from green; each chart has a
legend and a table with the same names beside it.
"""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #5b6775; --rule: #e2e6eb; --bad: #b3261e; --mark: #7a3ea1;
  --c0: #2f6fb3; --c1: #e08a1e; --c2: #2a9d76; --c3: #c2504a; --c4: #8a6cc0; --c5: #4fb0d1; --c6: #b59b1a; --c7: #98a2ae }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12171d; --card: #1b222b; --ink: #e4e9ef; --soft: #97a4b3; --rule: #2c3642; --bad: #ff8a80; --mark: #cf9df0;
  --c0: #63a4e8; --c1: #f0a848; --c2: #4cc79b; --c3: #ec807a; --c4: #b29be6; --c5: #77cde9; --c6: #d8c04a; --c7: #6b7786 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 40px }
h1 { font-size: 26px; margin: 0 }
h2 { font-size: 17px; margin: 0 0 2px }
h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600 } .wide + h3, .legend + h3 { margin-top: 18px }
p { margin: 0 } .soft { color: var(--soft) } .bad { color: var(--bad) }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 18px 20px; margin-top: 16px; min-width: 0 }
section > p.soft { font-size: 13.5px; margin-bottom: 12px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 18px }
.tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px }
.tiles b { display: block; font-size: 23px; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft); font-size: 13px }
.beside { display: grid; grid-template-columns: minmax(0, 2.4fr) minmax(230px, 1fr); gap: 10px 28px; align-items: start }
.pair, .four { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px }
.four { gap: 18px 32px }
.pair section { margin-top: 16px }
.chart { position: relative; margin: 8px 0 24px 46px; height: 190px }
.four { grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)) }
.four .chart { height: 110px }
.chart svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible }
.chart path, .chart rect { vector-effect: non-scaling-stroke }
.up span, .across span { position: absolute; color: var(--soft); font-size: 12px; line-height: 1; white-space: nowrap;
  font-variant-numeric: tabular-nums }
.up span { right: calc(100% + 7px); transform: translateY(50%) }
.across span { top: calc(100% + 8px); transform: translateX(-50%) }
.across span:first-child { transform: translateX(max(-50%, -18px)) }
.grid { stroke: var(--rule); fill: none } .mark { stroke: var(--mark); stroke-dasharray: 4 3; fill: none }
.c0 { fill: var(--c0); background: var(--c0); stroke: var(--c0) } .c1 { fill: var(--c1); background: var(--c1); stroke: var(--c1) }
.c2 { fill: var(--c2); background: var(--c2); stroke: var(--c2) } .c3 { fill: var(--c3); background: var(--c3); stroke: var(--c3) }
.c4 { fill: var(--c4); background: var(--c4); stroke: var(--c4) } .c5 { fill: var(--c5); background: var(--c5); stroke: var(--c5) }
.c6 { fill: var(--c6); background: var(--c6); stroke: var(--c6) } .c7 { fill: var(--c7); background: var(--c7); stroke: var(--c7) }
path[class^=c] { stroke: none } path.line { fill: none; stroke-width: 2; stroke-linejoin: round }
path.c0.line { stroke: var(--c0) } path.c1.line { stroke: var(--c1) } path.c2.line { stroke: var(--c2) } path.c3.line { stroke: var(--c3) }
path.c4.line { stroke: var(--c4) } path.c5.line { stroke: var(--c5) } path.c6.line { stroke: var(--c6) } path.c7.line { stroke: var(--c7) }
path.area { fill-opacity: .16 }
.hit { fill: transparent; stroke: none } .hit:hover { fill: var(--ink); fill-opacity: .07 }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0; padding: 0 0 0 46px; font-size: 13px }
i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: 13.5px }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px; white-space: nowrap }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top }
tr:last-child td { border-bottom: 0 } td:last-child, th:last-child { padding-right: 0 }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.t { white-space: nowrap; font-variant-numeric: tabular-nums }
td.k { overflow-wrap: anywhere; font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12.5px }
td.k + td.k:last-child { min-width: 230px }
.share { width: 30%; min-width: 60px } .share u { display: block; height: 9px; margin-top: 5px; border-radius: 3px; background: var(--c0) }
footer { margin-top: 20px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere }
@media (max-width: 820px) {
  main { padding: 18px 12px 30px } section { padding: 14px }
  .beside, .pair { grid-template-columns: minmax(0, 1fr) } .pair { gap: 0 }
  .four { grid-template-columns: minmax(0, 1fr) } .chart { margin-left: 42px } .legend { padding-left: 42px }
  .across .odd { display: none } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)) } .tiles b { font-size: 20px } }
@media print { body { background: #fff } section, .tiles div { break-inside: avoid } }
"""

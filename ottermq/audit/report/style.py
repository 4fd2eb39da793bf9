"""How the page looks: two sets of colours, whose neighbours differ for the colour-blind, too."""

STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #16202b; --soft: #5b6875; --line: #e3e7ec;
  --violation: #c8322b; --violation-tint: #fdecea; --warning: #b06a00; --warning-tint: #fdf3e0;
  --note: #4a6fa5; --note-tint: #eaf1fa; --clean: #1d7f4e; --clean-tint: #e6f5ec;
  --c0: #2f6fb7; --c1: #d9822b; --c2: #2a9d77; --c3: #8e5bb5; --c4: #c94f6d; --c5: #6b8e23;
  --c6: #1f9bb3; --c7: #8a6d5a;
  --o0: #bcdcf2; --o1: #97c6e8; --o2: #72aedb; --o3: #5196cb; --o4: #367db6; --o5: #24659c;
  --o6: #184e7e; --o7: #0e3860; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10151b; --card: #182029; --ink: #e8edf2; --soft: #93a1af; --line: #2a3540;
  --violation: #ff7a70; --violation-tint: #3a1e1d; --warning: #f0b04f; --warning-tint: #352812;
  --note: #86aee0; --note-tint: #1c2a3d; --clean: #56c78d; --clean-tint: #14301f;
  --c0: #6aa7e8; --c1: #f0a04b; --c2: #4fc39b; --c3: #b98ae0; --c4: #ee7d98; --c5: #a4c04d;
  --c6: #4fc4db; --c7: #bfa08c;
  --o0: #1d3f5f; --o1: #24527b; --o2: #2f6797; --o3: #417fb2; --o4: #5a97c9; --o5: #79afdb;
  --o6: #9cc8ea; --o7: #c4e0f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 48px; }
header { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-end;
  justify-content: space-between; margin-bottom: 24px; }
.kicker { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: .06em;
  text-transform: uppercase; }
h1 { margin: 2px 0; font-size: 34px; line-height: 1.15; letter-spacing: -.02em;
  text-transform: capitalize; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .92em; }
.verdict { display: inline-flex; align-items: center; gap: 10px; margin: 0; padding: 10px 18px;
  border-radius: 999px; font-weight: 600; }
.verdict i { width: 10px; height: 10px; border-radius: 50%; background: currentColor; }
.verdict.violation, .chip.violation { color: var(--violation); background: var(--violation-tint); }
.verdict.warning, .chip.warning { color: var(--warning); background: var(--warning-tint); }
.verdict.note, .chip.note { color: var(--note); background: var(--note-tint); }
.verdict.clean { color: var(--clean); background: var(--clean-tint); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px;
  margin: 0 0 20px; }
.tiles div, section { background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
.tiles div { padding: 14px 18px; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 2px 0 0; font-size: 21px; font-weight: 600; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 0 0 20px;
  font-size: 13px; }
.facts div { display: contents; }
.facts dd { margin: 0; font-size: 13px; font-weight: 400; letter-spacing: 0; }
.finding p { margin: 0 0 8px; max-width: 80ch; }
.finding .wide { margin-top: 14px; }
.segment { white-space: nowrap; color: var(--soft); font-size: 12.5px;
  font-variant-numeric: tabular-nums; }
section { padding: 20px 22px; margin-bottom: 20px; }
h2 { margin: 0 0 12px; font-size: 17px; }
.note { margin: 10px 0 0; color: var(--soft); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 0 0 8px; padding: 0;
  list-style: none; color: var(--soft); font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 7px; }
.legend i { width: 12px; height: 12px; border-radius: 3px; background: currentColor; }
.legend.round i { border-radius: 50%; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.tick { fill: var(--soft); } .name, .value { fill: var(--ink); }
.value { font-variant-numeric: tabular-nums; }
.grid, .lane, .notch { stroke: var(--line); stroke-width: 1; }
.now { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
rect, circle { fill: currentColor; }
.line { fill: none; stroke: currentColor; stroke-width: 2.25; stroke-linejoin: round; }
.ahead { stroke-dasharray: 5 5; opacity: .8; }
.area { fill: currentColor; opacity: .12; }
.touch { opacity: 0; }
.dot { stroke: var(--card); stroke-width: 1; }
.endname { fill: currentColor; font-weight: 600; }
.mark { stroke: var(--card); stroke-width: 1.5; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
.c6 { color: var(--c6); } .c7 { color: var(--c7); }
.o0 { color: var(--o0); } .o1 { color: var(--o1); } .o2 { color: var(--o2); }
.o3 { color: var(--o3); } .o4 { color: var(--o4); } .o5 { color: var(--o5); }
.o6 { color: var(--o6); } .o7 { color: var(--o7); }
.mark.violation, .legend .violation { color: var(--violation); }
.mark.warning, .legend .warning { color: var(--warning); }
.mark.note, .legend .note { color: var(--note); margin: 0; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
th { padding: 0 14px 8px 0; color: var(--soft); font-size: 12.5px; font-weight: 500;
  text-align: left; white-space: nowrap; }
td { padding: 9px 14px 9px 0; border-top: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.time { white-space: nowrap; color: var(--soft); font-variant-numeric: tabular-nums; }
.kind { white-space: nowrap; }
.what { min-width: 260px; }
small { color: var(--soft); font-weight: 400; }
.what small { display: block; }
.chip { display: inline-block; padding: 1px 10px; border-radius: 999px; font-size: 12.5px;
  font-weight: 600; }
footer { color: var(--soft); font-size: 13px; text-align: center; }
@media print { body { background: none; } section, .tiles div { break-inside: avoid; } }
"""

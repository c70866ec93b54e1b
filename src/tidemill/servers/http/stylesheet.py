"""The style of all pages, for light and dark mode. It is served from a path of its own: no page has styles inside."""

PATH = "/style.css"
MEDIA_TYPE = "text/css; charset=utf-8"

STYLE = """
:root { color-scheme: light dark; --ink: #16212b; --soft: #5b6b79; --line: #dfe5ea; --paper: #f6f8fa; --card: #fff;
  --tide: #0b7285; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #93a4b3; --line: #27323c; --paper: #0f151b;
  --card: #161e26; --tide: #3bc9db; --bad: #ff8a80; } }
* { box-sizing: border-box } body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -.01em } h1 b { color: var(--tide) }
h2 { margin: 2.2rem 0 .7rem; font-size: 1.05rem } p { color: var(--soft); margin: .2rem 0 1.4rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .7rem }
.tile, .sheet { background: var(--card); border: 1px solid var(--line); border-radius: .6rem }
.tile { padding: .8rem 1rem } .tile span { display: block; color: var(--soft); font-size: .8rem }
.tile strong { font-size: 1.35rem; font-variant-numeric: tabular-nums } .bad strong { color: var(--bad) }
.sheet { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .5rem 1rem; border-bottom: 1px solid var(--line); white-space: nowrap }
tr:last-child td { border-bottom: 0 } th { color: var(--soft); font-weight: 500; font-size: .8rem }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } td.w { white-space: normal; color: var(--soft) }
code { font: .9em ui-monospace, monospace } a { color: var(--tide) }
.user { float: right; color: var(--soft); font-size: .9rem } .user form { display: inline; margin-left: .7rem }
.login { max-width: 22rem; padding: 1.4rem 1.5rem; margin-top: 1.5rem }
.login p.bad { color: var(--bad); margin: 0 0 1rem }
label { display: block; margin-bottom: 1rem; color: var(--soft); font-size: .85rem }
input { display: block; width: 100%; margin-top: .25rem; padding: .5rem .6rem; font: inherit; color: var(--ink);
  background: var(--paper); border: 1px solid var(--line); border-radius: .4rem }
button { font: inherit; color: var(--tide); background: none; border: 1px solid var(--line); border-radius: .4rem;
  padding: .3rem .8rem; cursor: pointer }
"""

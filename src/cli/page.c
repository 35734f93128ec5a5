#include "cli/page.h"

#include <math.h>

#define TICKS 4u

static const char style[] =
	":root{--ground:#fcfcfa;--ink:#22242a;--soft:#6b6f7a;--line:#d9dade;--r0:#2563a8;--r1:#b3641c;--cut:#c22f3d;"
	"--good:#1d7a46;--box:#f2f2ef}"
	"@media(prefers-color-scheme:dark){:root{--ground:#16181d;--ink:#e6e7ea;--soft:#9a9fab;--line:#34373f;"
	"--r0:#6aa9ec;--r1:#e8a15c;--cut:#f0717c;--good:#5cc98b;--box:#1f2229}}"
	"*{box-sizing:border-box}body{margin:0 auto;padding:2rem 1.25rem;max-width:64rem;background:var(--ground);"
	"color:var(--ink);font:16px/1.5 system-ui,sans-serif}h1{font-size:1.6rem;margin:0 0 .25rem}"
	"h2{font-size:1.2rem;margin:2.5rem 0 .25rem}p{margin:.25rem 0 1rem;color:var(--soft)}"
	"svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}"
	".grid{stroke:var(--line);stroke-width:1}.r0{fill:var(--r0)}.r1{fill:var(--r1)}"
	".down{fill:var(--cut);opacity:.13}.cut{stroke:var(--cut);stroke-width:1.5}svg text.cuttext{fill:var(--cut)}"
	"dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:1rem 0}"
	"dl div{background:var(--box);border-radius:6px;padding:.6rem .8rem}dt{color:var(--soft);font-size:.85rem}"
	"dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums}.good{color:var(--good)}"
	".bad{color:var(--cut)}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}"
	"table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
	"th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line)}th{color:var(--soft);"
	"font-weight:500}details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}"
	".key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 1em;vertical-align:-1px}";

void page_text(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc(*text, to);
		}
	}
}

double page_tick(double range)
{
	double rough = range / TICKS, power;

	if (rough <= 0)
		return 1;
	power = pow(10, floor(log10(rough)));
	if (rough / power > 5)
		return 10 * power;
	if (rough / power > 2)
		return 5 * power;
	return rough / power > 1 ? 2 * power : power;
}

void page_begin(FILE *to, const char *title)
{
	fprintf(to,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
		"<meta name=\"color-scheme\" content=\"light dark\"><title>%s</title><style>%s</style>"
		"</head><body>\n<h1>%s</h1>\n",
		title, style, title);
}

void page_end(FILE *to)
{
	fputs("</body></html>\n", to);
}

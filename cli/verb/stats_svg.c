/* SPDX-License-Identifier: MIT */
#include "stats_svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "../format/json.h"
#include "../input/common.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/output.h"
#include "../sys/report.h"

/* Colours that differ for all eyes and on both grounds; .kN for kinds, .hot for what the picture is
 * about. */
static const char plot_style[] =
    "<style>svg{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace}.ground{fill:#fcfcfb}.ink{fill:#0b0b0b}.soft{fill:#52514e}.line{stroke:#"
    "d9d8d2;fill:none}.mark{stroke:#0b0b0b;stroke-width:2}.hot{fill:#eb6834}.trace{stroke:#eb6834;"
    "stroke-width:2;fill:none}.k0{fill:#2a78d6}.k1{fill:#1baf7a}.k2{fill:#eda100}.k3{fill:#4a3aa7}."
    "k4{fill:#e34948}.k5{fill:#008300}.k6{fill:#e87ba4}.k7{fill:#8a8984}@media(prefers-color-"
    "scheme:dark){.ground{fill:#1a1a19}.ink{fill:#fff}.soft{fill:#c3c2b7}.line{stroke:#3a3a37}."
    "mark{stroke:#fff}.hot{fill:#d95926}.trace{stroke:#d95926}.k0{fill:#3987e5}.k1{fill:#199e70}."
    "k2{fill:#c98500}.k3{fill:#9085e9}.k4{fill:#e66767}.k6{fill:#d55181}}</style>\n";

void open_plot(struct plot *p)
{
    memset(p, 0, sizeof *p);
    p->file = (FILE *)check_memory(open_memstream(&p->data, &p->size));
}

void close_plot(struct plot *p)
{
    if (p->file && fclose(p->file) != 0) check_memory(NULL);
    free(p->data);
}

void plot_text(const struct plot *p, const char *text, size_t max)
{
    json_t *clean = make_json_string(text, strlen(text));
    const char *at = json_string_value(clean);
    size_t n = 0;
    for (const char *c = at; *c; c++) n += ((unsigned char)*c & 0xC0) != 0x80;
    if (n > max) {
        fputs("\xE2\x80\xA6", p->file);
        for (n -= max - 1; n; at++) n -= ((unsigned char)at[1] & 0xC0) != 0x80;
    }
    for (; *at; at++) {
        int is_no_character = strncmp(at, "\xEF\xBF\xBE", 3) == 0 ||
                              strncmp(at, "\xEF\xBF\xBF", 3) == 0; /* U+FFFE, U+FFFF */
        if (*at == '<' || *at == '>' || *at == '&' || *at == '"' || *at == '\'')
            fprintf(p->file, "&#%d;", *at);
        else putc((unsigned char)*at < 32 || *at == 127 || is_no_character ? '?' : *at, p->file);
        at += is_no_character ? 2 : 0;
    }
    json_decref(clean);
}

void begin_plot(const struct plot *p, double width, double height, const char *title,
                const char *subtitle)
{
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s",
            width, height, width, height, title, plot_style);
    fprintf(p->file,
            "<rect class=\"ground\" width=\"%.0f\" height=\"%.0f\"/>\n<text class=\"ink\" x=\"16\" "
            "y=\"24\" style=\"font-size:14px;font-weight:600\">%s</text>\n"
            "<text class=\"soft\" x=\"16\" y=\"42\">%s</text>\n",
            width, height, title, subtitle);
}

void end_plot(const struct plot *p) { fputs("</svg>\n", p->file); }

void plot_label(const struct plot *p, const char *style, double x, double y, const char *anchor,
                double degrees, const char *text, size_t max)
{
    fprintf(p->file, "<text class=\"%s\" text-anchor=\"%s\" ", style, anchor);
    if (degrees != 0)
        fprintf(p->file, "transform=\"translate(%.1f %.1f) rotate(%.0f)\">", x, y, degrees);
    else fprintf(p->file, "x=\"%.1f\" y=\"%.1f\">", x, y);
    plot_text(p, text, max);
    fputs("</text>\n", p->file);
}

int save_plot(struct plot *p, const char *path, const struct common *o)
{
    struct output out;
    struct attributes attributes;
    int code = open_output(&out, path, NULL, o->force), error;
    if (code != CODE_OK) return code;
    if (fflush(p->file) != 0) /* now data and size are those of the whole */
        check_memory(NULL);
    memset(&attributes, 0, sizeof attributes);
    error = write_output(&out, p->data, p->size);
    if (!error) return commit_output(&out, &attributes);
    code = fail_output(&out, error);
    discard_output(&out);
    return code;
}

/* SPDX-License-Identifier: MIT */
#include "stats_plot.h"

#include <stdlib.h>

#include "../input/base.h"
#include "../input/common.h"
#include "../sys/output.h"
#include "../sys/report.h"
#include "stats_bars.h"
#include "stats_census.h"
#include "stats_chart.h"
#include "stats_heat.h"
#include "stats_svg.h"

int check_plots(const struct stats *s)
{
    int code = CODE_OK;
    for (int which = 0; which < count_plots(s) && code == CODE_OK; which++) {
        char *path = name_plot(s, (enum stats_plot)which);
        code = check_output(path, NULL, s->o->force);
        if (code == CODE_OK) code = protect_bases(NULL, path, 0, s->o);
        free(path);
    }
    return code;
}

int write_plots(const struct stats *s)
{
    int code = CODE_OK;
    for (int which = 0; which < count_plots(s) && code == CODE_OK; which++) {
        char *path = name_plot(s, (enum stats_plot)which);
        struct chart c;
        code = protect_bases(NULL, path, 0, s->o); /* those found, too */
        if (code != CODE_OK) {
            free(path);
            break;
        }
        open_chart(&c, s, which == PLOT_DENSITY, 56, which == PLOT_DENSITY ? 40 : 56);
        if (which == PLOT_DENSITY) plot_density(&c);
        else plot_compressibility(&c);
        code = save_plot(&c.plot, path, s->o);
        close_chart(&c);
        free(path);
    }
    return code;
}

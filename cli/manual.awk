# SPDX-License-Identifier: MIT
# Makes the manual page of help.txt: awk -v version=X -f manual.awk help.txt >lmc.1
#
# Paragraphs are filled. A block that begins with four spaces or more stays as it is: commands. Any
# other block with two spaces in a row is a table: what comes before them is a word, what comes
# behind them, and below that, says what it means. The first four blocks are the overview, and have
# no heading of their own.

BEGIN {
    RS = ""
    FS = "\n"
    split("NAME,SYNOPSIS,SUMMARY OF OPTIONS,DESCRIPTION", overview, ",")
    print ".TH LMC 1 \"\" \"lmc " version "\""
}

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text) # else groff 1.23 prints typographic ones
    gsub(/\^/, "\\(ha", text)
    return text
}

function put(text) {
    text = escaped(text)
    print (text ~ /^[.]/ ? "\\&" : "") text
}

function put_table(    i, column, end, word, text) {
    for (i = 1; i <= NF && !column; i++)
        if (match($i, /[^ ]  +[^ ]/)) column = RSTART + RLENGTH - 1
    for (i = 1; i <= NF; i++) {
        match($i, /[^ ]/)
        text = substr($i, RSTART)
        if (RSTART < column) {
            end = match(text, /[^ ]  +[^ ]/) ? RSTART : length(text)
            word = substr(text, 1, end)
            text = substr(text, end + 1)
            sub(/^ +/, "", text)
            print ".TP\n\\fB" escaped(word) "\\fR"
        }
        if (text != "") put(text)
    }
}

/^# / { print ".SH " toupper(substr($0, 3)); is_first = 1; next }

{
    if (NR <= 4) { print ".SH " overview[NR]; is_first = 1 }
    is_commands = $1 ~ /^    /
    is_table = !is_commands && $0 ~ /[^ \n]  +[^ ]/
    if (!is_first && !is_table) print ".PP"
    is_first = 0
    if (NR == 1) $0 = "lmc, unlmc, lmccat" substr($0, 4)
    if (is_commands) print ".nf"
    if (is_table) put_table()
    else for (i = 1; i <= NF; i++)
        if ($i != "") put(is_commands ? substr($i, 5) : $i) # "": the end, in busybox
    if (is_commands) print ".fi"
}

END { print ".SH SEE ALSO\n.BR zstd (1)" }

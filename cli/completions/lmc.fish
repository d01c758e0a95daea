# fish completion for lmc, unlmc and lmccat                                     SPDX-License-Identifier: MIT

function __lmc_series_words # behind 'series', before the cursor, options left out
    set -l words (commandline -opc)
    set -l at (contains -i -- series $words); or return
    string match -v -- '-*' $words[(math $at + 1)..-1]
end

function __lmc_in_series # so many words there, and the verb is one of those named
    set -l words (__lmc_series_words)
    contains -- series (commandline -opc); and test (count $words) -ge $argv[1]; or return 1
    if test (count $argv) -eq 1
        test (count $words) -eq $argv[1]
    else
        contains -- $words[2] $argv[2..-1]
    end
end

function __lmc_series_names
    set -l words (__lmc_series_words)
    lmc series $words[1] list --json 2>/dev/null | string split '{' | string replace -rf '^"name":"([^"\\\\]*)".*' '$1'
    echo latest
end

# made by tools/completions.py
set -l verbs cat diff stats fold rebase verify apply salvage mount series compress decompress restore extract test list ls info pack unpack version help
set -l commands add list restore cat prune keep gc verify watch rebuild
set -l topics options compress restore test list cat directories files formats pipes deltas chains apply diff stats series mount salvage dump quant memory exit examples
for c in lmc unlmc lmccat
    complete -c $c -s z -l compress -d 'compress'
    complete -c $c -s d -l decompress -d 'restore'
    complete -c $c -l uncompress -d 'the same'
    complete -c $c -s t -l test -d 'check'
    complete -c $c -s l -l list -d 'list'
    complete -c $c -n "__fish_seen_subcommand_from series" -l keep-last -x -d 'keep last'
    complete -c $c -n "__fish_seen_subcommand_from series" -l keep-every -x -d 'keep every'
    complete -c $c -n "__fish_seen_subcommand_from series" -l dry-run -d 'dry run'
    complete -c $c -n "__fish_seen_subcommand_from series" -l name -x -d 'a value: a name'
    complete -c $c -n "__fish_seen_subcommand_from series" -l every -x -d 'every'
    complete -c $c -n "__fish_seen_subcommand_from series" -l anchor -d 'anchor'
    complete -c $c -n "__fish_seen_subcommand_from series" -l verify -d 'verify'
    complete -c $c -n "__fish_seen_subcommand_from series" -l settle -x -d 'settle'
    complete -c $c -n "__fish_seen_subcommand_from series" -l interval -x -d 'interval'
    complete -c $c -n "__fish_seen_subcommand_from series" -l once -d 'once'
    complete -c $c -n "__fish_seen_subcommand_from series" -l match -x -d 'a pattern for names'
    complete -c $c -s o -l output -r -d 'write to OUT'
    complete -c $c -s c -l stdout -d 'write to standard output'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l foreground -d 'mount'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l allow-other -d 'mount'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l log -r -d 'mount'
    complete -c $c -s f -l force -d 'overwrite'
    complete -c $c -s r -l recursive -d 'all files below the directories'
    complete -c $c -l rm -d 'remove the source after the output is on the disk, and was read back and checked'
    complete -c $c -s k -l keep -d 'keep the source'
    complete -c $c -l max-files -x -d 'at most N files and directories'
    complete -c $c -l max-depth -x -d 'at most N files and directories'
    complete -c $c -l base -r -d 'compress against, and restore with, this snapshot, file or directory'
    complete -c $c -l patch-from -r -d 'the same'
    complete -c $c -l search -x -a '(__fish_complete_directories)' -d 'also look for the bases of deltas there'
    complete -c $c -l no-search -d 'no search'
    complete -c $c -l no-base -d '-t, verify: check deltas without their bases'
    complete -c $c -l dereference -d 'what links lead to, or links'
    complete -c $c -l no-dereference -d 'what links lead to, or links'
    complete -c $c -l exclude -x -d 'of a directory, leave out what has such a name or path'
    complete -c $c -n "__fish_seen_subcommand_from apply" -l trust-base -d 'apply: do not read the target first'
    complete -c $c -n "__fish_seen_subcommand_from rebase" -l onto -r -d 'rebase: the base of the output, or none'
    complete -c $c -l dtype -x -a 'BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 I4 U4 I2 U2 C128' -d 'the input is a raw array of NAME'
    complete -c $c -l opaque -d 'plain bytes'
    complete -c $c -l fast -d 'faster both ways'
    complete -c $c -l max -d 'smaller, and restored as fast'
    complete -c $c -l archive -d 'smallest: deltas by up to 1 %'
    complete -c $c -l no-twins -d 'store each tensor by itself'
    complete -c $c -l no-zeros -d 'for readers without these parts of the format'
    complete -c $c -l no-matrix -d 'for readers without these parts of the format'
    complete -c $c -l no-codes -d 'for readers without these parts of the format'
    complete -c $c -l hash -d 'store the SHA-256 of all tensors and files'
    complete -c $c -l quant -x -d 'LOSSY: store optimizer states with an error that a rule limits'
    complete -c $c -l policy -r -d 'LOSSY: store optimizer states with an error that a rule limits'
    complete -c $c -l json -d 'test, list, diff, stats, verify, apply, salvage: JSON'
    complete -c $c -n "__fish_seen_subcommand_from diff stats" -l top -x -d 'diff, stats: only the N largest tensors'
    complete -c $c -n "__fish_seen_subcommand_from cat series" -l npy -d 'cat: write such a file'
    complete -c $c -n "__fish_seen_subcommand_from cat" -l f32 -d 'cat: write such a file'
    complete -c $c -n "__fish_seen_subcommand_from cat" -l safetensors -d 'cat: write such a file'
    complete -c $c -n "__fish_seen_subcommand_from cat series" -l file -x -d 'cat: the tensor of that file'
    complete -c $c -s q -l quiet -d 'no messages but errors'
    complete -c $c -s v -l verbose -d 'sizes and speed'
    complete -c $c -s T -l threads -x -d 'threads'
    complete -c $c -l progress -d 'progress'
    complete -c $c -l no-progress -d 'no progress'
    complete -c $c -s V -l version -d 'the version of lmc and of the format'
    complete -c $c -s h -l help -d 'this page, or that of a verb'
end
# end of what is made

for c in lmc unlmc lmccat
    complete -c $c -n "not __fish_seen_subcommand_from $verbs" -a "$verbs"
    complete -c $c -n "__fish_seen_subcommand_from help" -f -a "$topics"
    complete -c $c -n "__lmc_in_series 0" -f -a "(__fish_complete_directories)"
    complete -c $c -n "__lmc_in_series 1" -f -a "$commands"
    complete -c $c -n "__lmc_in_series 2 restore cat verify prune keep" -f -a "(__lmc_series_names)"
    complete -c $c -n "__lmc_in_series 2 list gc rebuild" -f
end

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

set -l verbs cat diff apply fold rebase verify series stats mount salvage help compress decompress restore test list info version
for c in lmc unlmc lmccat
    complete -c $c -n "not __fish_seen_subcommand_from $verbs" -a "$verbs"
    complete -c $c -n "__fish_seen_subcommand_from help" -f -a "options compress restore test list cat directories files formats pipes deltas chains apply diff stats series mount salvage dump quant memory exit examples"
    complete -c $c -n "__lmc_in_series 0" -f -a "(__fish_complete_directories)"
    complete -c $c -n "__lmc_in_series 1" -f -a "add list restore cat prune keep gc verify watch rebuild"
    complete -c $c -n "__lmc_in_series 2 restore cat verify prune keep" -f -a "(__lmc_series_names)"
    complete -c $c -n "__lmc_in_series 2 list gc rebuild" -f
    complete -c $c -s z -l compress -d 'compress'
    complete -c $c -s d -l decompress -d 'restore'
    complete -c $c -l uncompress -d 'restore'
    complete -c $c -s t -l test -d 'check'
    complete -c $c -s l -l list -d 'list'
    complete -c $c -l json -d 'JSON'
    complete -c $c -n "__fish_seen_subcommand_from diff stats" -l top -x -d 'only the largest'
    complete -c $c -s c -l stdout -d 'write to standard output'
    complete -c $c -s o -l output -r -d 'write to'
    complete -c $c -s f -l force -d 'overwrite'
    complete -c $c -s k -l keep -d 'keep the source'
    complete -c $c -l rm -d 'remove the source once the output is verified'
    complete -c $c -s r -l recursive -d 'below the directories'
    complete -c $c -l base -r -d 'compress against, restore with'
    complete -c $c -l patch-from -r -d 'the same as --base'
    complete -c $c -l search -x -a '(__fish_complete_directories)' -d 'look for bases there'
    complete -c $c -l no-search -d 'look for no base that is not given'
    complete -c $c -l no-base -d '-t, verify: check deltas without their bases'
    complete -c $c -l dereference -d 'store what links lead to'
    complete -c $c -l no-dereference -d 'store all links as links'
    complete -c $c -l trust-base -d 'apply: do not read the target first'
    complete -c $c -l onto -r -d 'rebase: the new base, or none'
    complete -c $c -l dtype -x -a 'BF16 F16 F32 F64 F8_E4M3 F8_E5M2 I8 I16 I32 I64 U8 U16 U32 U64 BOOL C64' -d 'a raw array of'
    complete -c $c -l opaque -d 'plain bytes'
    complete -c $c -l fast -d 'faster, a little larger'
    complete -c $c -l max -d 'smaller; compresses slowly'
    complete -c $c -l archive -d 'smallest; slow both ways'
    complete -c $c -l hash -d 'store SHA-256 of all; -t, verify: check them'
    complete -c $c -l no-twins -d 'store each tensor by itself'
    complete -c $c -l no-zeros -d 'for readers without this part of the format'
    complete -c $c -l quant -x -d 'lossy: a rule'
    complete -c $c -l policy -r -d 'lossy: a file of rules'
    complete -c $c -l npy -d 'cat: a .npy file'
    complete -c $c -l safetensors -d 'cat: a safetensors file'
    complete -c $c -l f32 -d 'cat: small floats become F32'
    complete -c $c -l file -x -d 'cat: the file in the snapshot'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l foreground -d 'stay in the foreground'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l allow-other -d 'other users may read'
    complete -c $c -n "__fish_seen_subcommand_from mount" -l log -r -d 'file for messages'
    complete -c $c -l exclude -x -d 'of directories, leave out'
    complete -c $c -l max-files -x -d 'restore, or take, at most so many files'
    complete -c $c -l max-depth -x -d 'restore at most so deep'
    for o in name every keep-last keep-every settle interval match
        complete -c $c -n "__fish_seen_subcommand_from series" -l $o -x
    end
    # name every keep-last keep-every settle interval match anchor verify dry-run once: of a series
    for o in anchor verify dry-run once
        complete -c $c -n "__fish_seen_subcommand_from series" -l $o
    end
    complete -c $c -s T -l threads -x -d 'threads'
    complete -c $c -s q -l quiet -d 'no messages but errors'
    complete -c $c -s v -l verbose -d 'sizes and speed'
    complete -c $c -l progress -d 'show progress'
    complete -c $c -l no-progress -d 'show none'
    complete -c $c -s V -l version -d 'print the version'
    complete -c $c -s h -l help -d 'help'
end

# bash completion for lmc, unlmc and lmccat                                     SPDX-License-Identifier: MIT

_lmc_values() { # of the key that objects of the JSON begin with
    tr '{' '\n' | sed -n "s/^\"$1\":\"\([^\"\\\\]*\)\".*/\1/p"
}

_lmc_members() { # paths in the snapshot that stands before the cursor
    local word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ -f $word && ($word == *.lmc || $verb == cat) ]]; then
            lmc -l --json "$word" 2>/dev/null | _lmc_values "$1"
            return
        fi
    done
}

_lmc_series() { # behind 'series': the directory, a verb, and what that takes
    local cur=$1 word seen='' words=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $seen && $word != -* ]] && words+=("$word")
        [[ $word == series ]] && seen=1
    done
    case ${#words[@]} in
    0) compgen -d -- "$cur"; return ;;
    1) compgen -W 'add list restore cat prune keep gc verify watch rebuild' -- "$cur"; return ;;
    esac
    case ${words[1]} in
    add) compgen -f -- "$cur" ;;
    watch) compgen -d -- "$cur" ;;
    restore | cat | verify | prune | keep)
        if [[ ${words[1]} == cat && ${#words[@]} -gt 2 ]]; then
            compgen -W "$(lmc -l --json "${words[0]%/}/${words[2]}.lmc" 2>/dev/null | _lmc_values name)" -- "$cur"
        else
            compgen -W "$(lmc series "${words[0]}" list --json 2>/dev/null | _lmc_values name) latest" -- "$cur"
        fi ;;
    esac
}

_lmc() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word verb='' has_snapshot=''
    local verbs='cat diff apply fold rebase verify series stats mount salvage help compress decompress restore test list info version'
    local all='--compress --decompress --uncompress --test --list --json --top --stdout --output --force --keep --rm --recursive --base
        --patch-from --search --no-search --no-base --dereference --no-dereference --dtype --opaque --fast --max --archive --hash --no-twins --no-zeros
        --quant --policy
        --exclude --max-files --max-depth --threads --quiet --verbose --progress --no-progress --version --help'
    local common='--base --patch-from --search --no-search --threads --quiet --verbose --progress --no-progress --help'
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ -z $verb && " $verbs extract ls " == *" $word "* ]] && verb=$word
        [[ $word == *.lmc || ($verb == cat && -f $word) ]] && has_snapshot=1
        [[ $word == -d* || $word == --decompress || $word == --uncompress ]] && verb=decompress
    done
    case $prev in
    --dtype) mapfile -t COMPREPLY < <(compgen -W 'BF16 F16 F32 F64 F8_E4M3 F8_E5M2 I8 I16 I32 I64 U8 U16 U32 U64 BOOL C64' -- "$cur"); return ;;
    --search) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --base | --patch-from | -o | --output | --policy | --log) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    --onto) mapfile -t COMPREPLY < <(compgen -f -W none -- "$cur"); return ;;
    --file) mapfile -t COMPREPLY < <(compgen -W "$(_lmc_members path)" -- "$cur"); return ;;
    help) mapfile -t COMPREPLY < <(compgen -W 'options compress restore test list cat directories files formats pipes deltas chains apply diff stats series mount salvage dump quant memory exit examples' -- "$cur"); return ;;
    -T | --threads | --quant | --name | --every | --keep-last | --keep-every | --settle | --interval | --match | --exclude | --top | --max-files | --max-depth) return ;;
    esac
    if [[ $cur == -* ]]; then
        local options=$all
        case $verb in
        cat) options="$common --npy --safetensors --f32 --file --output --stdout --force --dtype --opaque" ;;
        diff) options="$common --json --top --max --dtype --opaque --dereference --no-dereference --max-files" ;;
        stats) options="$common --json --top --max --dtype --opaque --dereference --no-dereference --max-files" ;;
        fold) options="$common --fast --max --archive --hash --no-twins --no-zeros --output --stdout --force" ;;
        rebase) options="$common --onto --fast --max --archive --hash --no-twins --no-zeros --output --stdout --force" ;;
        apply) options='--trust-base --json --force --threads --quiet --verbose --progress --no-progress --help' ;;
        mount) options="--base --patch-from --search --no-search --foreground --allow-other --log --threads --quiet --verbose --help" ;;
        salvage) options="$common --json --output --force" ;;
        series) options='--name --every --anchor --verify --rm --json --output --force --npy --file --dry-run --keep-last --keep-every
            --keep --settle --interval --once --match --fast --max --archive --hash --no-twins --no-zeros --quant --policy --dtype --opaque --dereference --no-dereference --exclude --max-files --max-depth
            --threads --quiet --verbose --help' ;;
        verify) options="$common --no-base --hash --json --max-files --max-depth" ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    if [[ $verb == series ]]; then
        mapfile -t COMPREPLY < <(_lmc_series "$cur")
        return
    elif [[ $verb == cat && $has_snapshot ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_lmc_members name)" -- "$cur")
        return
    elif [[ $verb == decompress && $has_snapshot ]]; then
        mapfile -t COMPREPLY < <(compgen -f -W "$(_lmc_members path)" -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <({ [[ -z $verb ]] && compgen -W "$verbs" -- "$cur"; compgen -f -- "$cur"; })
}

complete -o filenames -F _lmc lmc unlmc lmccat

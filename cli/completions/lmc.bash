# bash completion for lmc, unlmc and lmccat                                     SPDX-License-Identifier: MIT

_lmc_members() { # paths in the snapshot that stands before the cursor
    local word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $word == *.lmc && -f $word ]]; then
            lmc -l --json "$word" 2>/dev/null | tr '{' '\n' | sed -n "s/^\"$1\":\"\([^\"\\\\]*\)\".*/\1/p"
            return
        fi
    done
}

_lmc() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word verb='' has_snapshot=''
    local verbs='cat diff apply fold rebase verify series stats salvage dump help compress decompress restore test list info version'
    local all='--compress --decompress --uncompress --test --list --json --stdout --output --force --keep --rm --recursive --base
        --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --fast --max --archive --hash --no-twins
        --quant --policy
        --max-files --max-depth --threads --quiet --verbose --progress --no-progress --version --help'
    local common='--base --patch-from --search --no-search --threads --quiet --verbose --progress --no-progress --help'
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ -z $verb && " $verbs extract ls " == *" $word "* ]] && verb=$word
        [[ $word == *.lmc ]] && has_snapshot=1
        [[ $word == -d* || $word == --decompress || $word == --uncompress ]] && verb=decompress
    done
    case $prev in
    --dtype) mapfile -t COMPREPLY < <(compgen -W 'BF16 F16 F32 F64 F8_E4M3 F8_E5M2 I8 I16 I32 I64 U8 U16 U32 U64 BOOL C64' -- "$cur"); return ;;
    --search) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --onto) mapfile -t COMPREPLY < <(compgen -f -W none -- "$cur"); return ;;
    --file) mapfile -t COMPREPLY < <(compgen -W "$(_lmc_members path)" -- "$cur"); return ;;
    help) mapfile -t COMPREPLY < <(compgen -W 'compress restore test list formats directories quant deltas chains apply series salvage dump cat diff stats pipes memory exit' -- "$cur"); return ;;
    -T | --threads | --quant | --name | --every | --keep-last | --keep-every | --settle | --interval | --match | --max-files | --max-depth) return ;;
    esac
    if [[ $cur == -* ]]; then
        local options=$all
        case $verb in
        cat) options="$common --npy --safetensors --f32 --file --output --stdout --force --dtype --opaque" ;;
        diff) options="$common --json --max --dtype --opaque --dereference --no-dereference --max-files" ;;
        stats) options="$common --json --max --svg --force --dtype --opaque --dereference --no-dereference --max-files" ;;
        fold) options="$common --fast --max --archive --hash --no-twins --output --stdout --force" ;;
        rebase) options="$common --onto --fast --max --archive --hash --no-twins --output --stdout --force" ;;
        apply) options='--trust-base --force --threads --quiet --verbose --progress --no-progress --help' ;;
        salvage) options="$common --json --output --force" ;;
        series) options='--name --every --anchor --verify --rm --json --output --force --npy --file --dry-run --keep-last --keep-every
            --keep --settle --interval --once --match --fast --max --archive --hash --no-twins --quant --policy --dtype --opaque --dereference --no-dereference --max-files
            --threads --quiet --verbose --help' ;;
        verify | dump) options=$common ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    if [[ $verb == series ]]; then
        for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
            if [[ -d $word ]]; then
                mapfile -t COMPREPLY < <(compgen -f -W 'add list restore cat prune keep gc verify watch rebuild' -- "$cur")
                return
            fi
        done
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

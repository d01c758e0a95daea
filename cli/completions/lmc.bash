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
    1) compgen -W "$commands" -- "$cur"; return ;;
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
    # made by tools/completions.py
    local verbs='cat diff stats fold rebase verify apply salvage mount series compress decompress restore extract test list ls info pack unpack version help'
    local commands='add list restore cat prune keep gc verify watch rebuild'
    local topics='options compress restore test list cat directories files formats pipes deltas chains apply diff stats series mount salvage dump quant memory exit examples'
    local dtypes='BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 I4 U4 I2 U2 C128'
    local takes_file=' -o --output --log --base --patch-from --onto --policy '
    local takes_directory=' --search '
    local takes_text=' --keep-last --keep-every --name --every --settle --interval --match --max-files --max-depth --exclude --quant --top -T --threads '
    local -A takes=(
        [none]='--compress --decompress --uncompress --test --list --output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --no-base --dereference --no-dereference --exclude --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quant --policy --json --quiet --verbose --threads --progress --no-progress --version --help'
        [cat]='--output --stdout --force --recursive --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --npy --f32 --safetensors --file --quiet --verbose --threads --progress --no-progress --version --help'
        [diff]='--force --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --fast --max --archive --json --top --quiet --verbose --threads --progress --no-progress --version --help'
        [stats]='--force --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --fast --max --archive --json --top --quiet --verbose --threads --progress --no-progress --version --help'
        [fold]='--output --stdout --force --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quiet --verbose --threads --progress --no-progress --version --help'
        [rebase]='--output --stdout --force --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --onto --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quiet --verbose --threads --progress --no-progress --version --help'
        [verify]='--force --keep --max-files --max-depth --base --patch-from --search --no-search --no-base --dereference --no-dereference --dtype --opaque --hash --json --quiet --verbose --threads --progress --no-progress --version --help'
        [apply]='--force --keep --max-files --max-depth --dereference --no-dereference --trust-base --dtype --opaque --json --quiet --verbose --threads --progress --no-progress --version --help'
        [salvage]='--output --force --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --json --quiet --verbose --threads --progress --no-progress --version --help'
        [mount]='--foreground --allow-other --log --keep --base --patch-from --search --no-search --dtype --opaque --quiet --verbose --threads --progress --no-progress --version --help'
        [series]='--keep-last --keep-every --dry-run --name --every --anchor --verify --settle --interval --once --match --output --stdout --force --rm --keep --max-files --max-depth --dereference --no-dereference --exclude --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quant --policy --json --npy --file --quiet --verbose --threads --progress --no-progress --version --help'
        [compress]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --exclude --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quant --policy --quiet --verbose --threads --progress --no-progress --version --help'
        [decompress]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --quiet --verbose --threads --progress --no-progress --version --help'
        [restore]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --quiet --verbose --threads --progress --no-progress --version --help'
        [extract]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --quiet --verbose --threads --progress --no-progress --version --help'
        [test]='--force --recursive --keep --max-files --max-depth --base --patch-from --search --no-search --no-base --dereference --no-dereference --dtype --opaque --hash --json --quiet --verbose --threads --progress --no-progress --version --help'
        [list]='--force --recursive --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --json --quiet --verbose --threads --progress --no-progress --version --help'
        [ls]='--force --recursive --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --json --quiet --verbose --threads --progress --no-progress --version --help'
        [info]='--force --recursive --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --json --quiet --verbose --threads --progress --no-progress --version --help'
        [pack]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --exclude --dtype --opaque --fast --max --archive --no-twins --no-zeros --no-matrix --no-codes --hash --quant --policy --quiet --verbose --threads --progress --no-progress --version --help'
        [unpack]='--output --stdout --force --recursive --rm --keep --max-files --max-depth --base --patch-from --search --no-search --dereference --no-dereference --dtype --opaque --quiet --verbose --threads --progress --no-progress --version --help'
    )
    # end of what is made
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ -z $verb && " $verbs extract ls " == *" $word "* ]] && verb=$word
        [[ $word == *.lmc || ($verb == cat && -f $word) ]] && has_snapshot=1
        [[ $word == -d* || $word == --decompress || $word == --uncompress ]] && verb=decompress
    done
    case $prev in
    --dtype) mapfile -t COMPREPLY < <(compgen -W "$dtypes" -- "$cur"); return ;;
    --onto) mapfile -t COMPREPLY < <(compgen -f -W none -- "$cur"); return ;;
    --file) mapfile -t COMPREPLY < <(compgen -W "$(_lmc_members path)" -- "$cur"); return ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$topics" -- "$cur"); return ;;
    esac
    if [[ $takes_file == *" $prev "* ]]; then mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return; fi
    if [[ $takes_directory == *" $prev "* ]]; then mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return; fi
    if [[ $takes_text == *" $prev "* ]]; then return; fi
    if [[ $cur == -* ]]; then
        local options=${takes[${verb:-none}]:-${takes[none]}}
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

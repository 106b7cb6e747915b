# Runs in the login account of another machine, in any POSIX shell, and becomes Penstock there. $t marks what it says,
# $h and $n are the hash and the size of the program, $s is 1 for root by sudo, "$@" are the program's arguments; $u is where systemd
# keeps the units that were made at run time, $v where programs can be kept beside the home.
say() { printf "penstock-%s %s\n" "$t" "$*"; }
line() { tr "\n" " "; }
say machine "$(uname -s)" "$(uname -m)" "$(id -u)"
IFS= read -r answer && [ "$answer" = go ] || exit 0

# What runs the program: sudo, or nothing.
by=
if [ "$s" = 1 ] && [ "$(id -u)" != 0 ]; then
    why=$(sudo -n true 2>&1 </dev/null) || { say sudo "$(printf %s "$why" | line)"; exit 0; }
    by="sudo -n --"
fi
# sudo need not let every program run, and root may not see what the account does, such as a home on NFS.
runs() { [ -x "$1" ] && $by "$1" --version >/dev/null 2>&1 </dev/null; }

# What is there is this very build only if it hashes to it, each time: the name of a directory proves nothing. Where nothing can
# hash, the program is brought each time.
same() { [ -f "$1" ] && [ -x "$1" ] && [ "$(sha256sum <"$1" 2>/dev/null | cut -c 1-64)" = "$h" ]; }

# Where somebody has installed this build it is taken from there.
program=
for d in /usr/local/bin /usr/bin; do
    if same "$d/penstock" && runs "$d/penstock"; then
        program=$d/penstock
        break
    fi
done
if [ -z "$program" ]; then
    # Nobody else may write where programs are kept that root runs: between the look at one and its start another could come. The second
    # place is for a home that runs no programs.
    first=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/penstock/bin
    second=$v/penstock-$(id -u)
    alone() {
        if [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; then
            # Neither its group nor others write there.
            case $(ls -ld "$1" 2>/dev/null) in d????-??-*) return ;; esac
        fi
        echo "$1 is no directory of this account alone: remove it, or chmod go-w" >&2
        return 1
    }
    # Nor do they below the home in what it is in, where they could put another in its place.
    own() {
        alone "$1" || return
        a=${1%/*}
        while case $a in "${HOME:-/nowhere}"/*) ;; *) false ;; esac do
            alone "$a" || return
            a=${a%/*}
        done
    }
    # The hash is of a file that nobody else changes.
    kept() { own "${1%/*}" 2>/dev/null && [ -O "$1" ] && same "$1"; }
    old=$(umask)
    umask 077
    place=
    for d in "$first" "$second"; do
        if own "$d" 2>/dev/null && kept "$d/$h/penstock" && runs "$d/$h/penstock"; then place=$d; break; fi
    done
    if [ -z "$place" ]; then
        why=
        for d in "$first" "$second"; do
            # Named as the program will be, for a rule of sudo that names its path: no wildcard there is a dot at the front.
            try=$d/try.$t
            if why="$why$d: $( { mkdir -p "$d" && own "$d" && mkdir "$try" && printf "#!/bin/sh\nexit 0\n" >"$try/penstock" &&
                chmod 700 "$try/penstock" && $by "$try/penstock"; } 2>&1 </dev/null && echo good)"
            then place=$d; fi
            rm -rf "$try" 2>/dev/null
            [ -n "$place" ] && break
            why="$why; "
        done
        if [ -z "$place" ]; then say noplace "$(printf %s "$why" | line)"; exit 0; fi
        new=$place/.new.$t
        trap "rm -f \"\$new\"" EXIT
        say need
        # Only what has arrived tells the other side that a slow connection is alive: its ssh takes more than it has sent.
        had=0
        while sleep 5 >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
            has=$(wc -c <"$new" 2>/dev/null)
            [ "$has" = "$had" ] || say comes || exit
            had=$has
        done &
        why=$(head -c "$n" 2>&1 >"$new")
        # Nothing of it may come between what the program says.
        kill "$!" 2>/dev/null && wait "$!" 2>/dev/null
        if [ "$(wc -c <"$new" | tr -d " ")" != "$n" ]; then say short "$place: $(printf %s "$why" | line)"; exit 0; fi
        if command -v sha256sum >/dev/null && [ "$(sha256sum <"$new" | cut -c 1-64)" != "$h" ]; then say spoilt; exit 0; fi
        chmod 700 "$new" && mkdir -p "$place/$h"
        why=$(own "$place/$h" 2>&1) || { say noplace "$why"; exit 0; }
        # Another session may have brought it meanwhile, and runs it: a running program keeps its name, by which it starts others.
        ln "$new" "$place/$h/penstock" 2>/dev/null || kept "$place/$h/penstock" || mv -f "$new" "$place/$h/penstock"
        rm -f "$new"
        trap - EXIT
        if ! runs "$place/$h/penstock"; then
            why=$($by "$place/$h/penstock" --version 2>&1 </dev/null)
            say broken "$(printf %s "$why" | line)"
            exit 0
        fi
    fi
    # The builds that were used last stay, and those that something runs from or a unit (a switch, a guard) names: systemd starts a switch
    # again for as long as its VM is there. What was cut off while it was brought goes. What root runs only root sees; where sudo does not let
    # that be seen, all stay.
    used() {
        grep -qsF "/$1/penstock" "$u"/*.service && return
        run=$($by ls -l /proc/[0-9]*/exe 2>/dev/null </dev/null)
        [ -z "$run" ] || printf "%s\n" "$run" | grep -qF "/$1/penstock"
    }
    touch "$place/$h" 2>/dev/null
    ls -1t "$place" | tail -n +4 | while IFS= read -r d; do
        case $d in *[!0-9a-f]*) ;; *) used "$d" || rm -rf "${place:?}/$d" ;; esac
    done
    find "$place" -maxdepth 1 "(" -name ".new.*" -o -name "try.*" ")" -mmin +60 -exec rm -rf {} + 2>/dev/null
    umask "$old"
    program=$place/$h/penstock
fi
say ready
exec $by "$program" --attended "$@"

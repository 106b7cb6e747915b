# Runs in the login account of another machine, in any POSIX shell, and becomes Penstock there. $t marks what it says,
# $h and $n are the hash and the size of the program, $s is 1 for root by sudo, "$@" are the program's arguments.
say() { printf "penstock-%s %s\n" "$t" "$*"; }
line() { tr "\n" " "; }
say machine "$(uname -s)" "$(uname -m)" "$(id -u)"
IFS= read -r answer && [ "$answer" = go ] || exit 0

if [ "$s" = 1 ] && [ "$(id -u)" != 0 ]; then
    why=$(sudo -n true 2>&1 </dev/null) || { say sudo "$(printf %s "$why" | line)"; exit 0; }
else
    s=0
fi

# What is there is this very build only if it hashes to it, each time: the name of a directory proves nothing. Where nothing can
# hash, the program is brought each time.
same() { [ -f "$1" ] && [ -x "$1" ] && [ "$(sha256sum <"$1" 2>/dev/null | cut -c 1-64)" = "$h" ]; }

# Where somebody has installed this build it is taken from there.
program=
for d in /usr/local/bin /usr/bin; do
    if same "$d/penstock"; then
        program=$d/penstock
        break
    fi
done
if [ -z "$program" ]; then
    # Nobody else may write where programs are kept that root runs. The second place is for a home that runs no programs.
    first=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/penstock/bin
    second=/var/tmp/penstock-$(id -u)
    own() { [ "$1" = "$first" ] || { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }; }
    runs() { [ -x "$1" ] && "$1" --version >/dev/null 2>&1 </dev/null; }
    old=$(umask)
    umask 077
    place=
    for d in "$first" "$second"; do
        if own "$d" && same "$d/$h/penstock" && runs "$d/$h/penstock"; then place=$d; break; fi
    done
    if [ -z "$place" ]; then
        why=
        for d in "$first" "$second"; do
            try=$d/.try.$t
            if why="$why$d: $( { mkdir -p "$d" && own "$d" && printf "#!/bin/sh\nexit 0\n" >"$try" && chmod 700 "$try" && "$try"; } 2>&1 </dev/null && echo good)"
            then place=$d; fi
            rm -f "$try" 2>/dev/null
            [ -n "$place" ] && break
            why="$why; "
        done
        if [ -z "$place" ]; then say noplace "$(printf %s "$why" | line)"; exit 0; fi
        new=$place/.new.$t
        trap "rm -f \"\$new\"" EXIT
        say need
        why=$(head -c "$n" 2>&1 >"$new")
        if [ "$(wc -c <"$new" | tr -d " ")" != "$n" ]; then say short "$place: $(printf %s "$why" | line)"; exit 0; fi
        if command -v sha256sum >/dev/null && [ "$(sha256sum <"$new" | cut -c 1-64)" != "$h" ]; then say spoilt; exit 0; fi
        chmod 700 "$new" && mkdir -p "$place/$h" && mv -f "$new" "$place/$h/penstock"
        trap - EXIT
        if ! runs "$place/$h/penstock"; then
            why=$("$place/$h/penstock" --version 2>&1 </dev/null)
            say broken "$(printf %s "$why" | line)"
            exit 0
        fi
    fi
    # The builds that were used last stay; what was cut off while it was brought goes.
    touch "$place/$h" 2>/dev/null
    ls -1t "$place" | tail -n +4 | while IFS= read -r d; do
        case $d in *[!0-9a-f]*) ;; *) rm -rf "${place:?}/$d" ;; esac
    done
    find "$place" -maxdepth 1 -name ".new.*" -mmin +60 -exec rm -f {} + 2>/dev/null
    umask "$old"
    program=$place/$h/penstock
fi
say ready
if [ "$s" = 1 ]; then exec sudo -n -- "$program" --attended "$@"; fi
exec "$program" --attended "$@"

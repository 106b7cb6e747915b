# Read by the scripts `containerd` and `kubelet`, which say what `name` is and what `run` and `ready` do: start, stop, restart and status of
# a program, without an init system that would do it.
record=/run/$name.process
log=/var/log/kubernetes/$name.log

# The process by its number and the time at which it started (proc_pid_stat(5), field 22): numbers are used again.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
alive() {
    [ -s "$record" ] || return 1
    read -r process since <"$record"
    [ -n "$since" ] && [ "$(started "$process")" = "$since" ]
}
start() {
    if alive; then return; fi
    line=$(run)
    # Split into words, of which none has a blank.
    setsid sh -c 'echo $$ >"$1.number"; shift; exec "$@"' sh "$record" $line </dev/null >>"$log" 2>&1 &
    # The number is there before the program has run its first instruction.
    tries=0
    until [ -s "$record.number" ]; do
        tries=$((tries + 1)) && [ $tries -lt 600 ] || { echo "$name was not started within 60 s" >&2; exit 1; }
        sleep 0.1
    done
    process=$(cat "$record.number")
    echo "$process $(started "$process")" >"$record"
    rm -f "$record.number"
    tries=0
    until ready; do
        alive || { echo "$name ended; it said last:" >&2; tail -n 20 "$log" >&2; exit 1; }
        tries=$((tries + 1)) && [ $tries -lt 1200 ] || { echo "$name was not ready within 120 s; it said last:" >&2; tail -n 20 "$log" >&2; exit 1; }
        sleep 0.1
    done
}
stop() {
    if alive; then
        kill "$process"
        tries=0
        while alive; do
            tries=$((tries + 1))
            [ $tries -ne 200 ] || kill -KILL "$process"
            [ $tries -lt 400 ] || { echo "$name, process $process, does not end" >&2; exit 1; }
            sleep 0.1
        done
    fi
    rm -f "$record"
}
case ${1-} in
start) start ;;
stop) stop ;;
restart) stop && start ;;
status) if alive; then echo "$name runs as process $process"; else echo "$name does not run" && exit 1; fi ;;
*) echo "usage: $0 start|stop|restart|status; its log is $log" >&2 && exit 2 ;;
esac

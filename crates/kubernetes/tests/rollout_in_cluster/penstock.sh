#!/bin/sh
# A penstock that changes nothing: what it was told to have done is in files beside it. `guard` is the process that an apply leaves.
at=$(dirname "$0")
verb=$1
model=$2
have() { cat "$at/$1" 2>/dev/null || echo "$2"; }
say() { echo "$(date +%s.%N) $(basename "$at") $1" >> "$at/../calls"; }
phase() { echo "$1" > "$at/phase.part" && mv "$at/phase.part" "$at/phase"; }
case "$verb" in
scan)
    sleep "$(have scanning 0)"
    exec cat "$at/scan.json" ;;
plan)
    exit=$(have plan.exit 0)
    if [ "$exit" = 0 ] && [ "$(have phase nothing)" = applied ] && cmp -s "$model" "$at/applied.yaml"; then
        echo '{"kind":"plan","steps":[],"dangers":[],"effects":{"vfs":[],"guests":[]},"needs_reboot":false}'
    else
        have plan.json '{"kind":"plan","steps":[{},{}],"dangers":[],"effects":{"vfs":[],"guests":[]},"needs_reboot":false}'
    fi
    exit "$exit" ;;
apply)
    exit=$(have apply.exit 0)
    [ "$exit" = 0 ] || { echo '{"kind":"error","errors":[{"message":"it cannot be done","causes":[],"hints":[]}]}'; exit "$exit"; }
    within=${4%s}
    run=$(($(have run 0) + 1))
    sleep "$(have begin 0)"
    echo "$run" > "$at/run"
    echo "$model" > "$at/model"
    cp "$model" "$at/applied.yaml"
    say begin
    phase waiting
    setsid "$at/penstock" guard "$run" "$within" > /dev/null 2>&1 < /dev/null &
    echo "$!" > "$at/guard.process"
    if [ -e "$at/cut" ]; then mv "$at/kubeconfig" "$at/kubeconfig.cut"; fi
    if [ -e "$at/made.json" ]; then mv "$at/made.json" "$at/scan.json"; fi
    # What a watch of the old model tells while the machine changes.
    if [ -e "$at/drifts" ]; then cat "$at/drifts" >> "$at/watch.jsonl"; fi
    sleep "$(have applying 0)"
    echo '{"kind":"apply"}' ;;
guard)
    sleep "$3"
    # What `confirm` does is one rename, and so is this.
    if [ "$(have run 0)" = "$2" ] && mv "$at/phase" "$at/phase.$2" 2>/dev/null; then
        if [ "$(cat "$at/phase.$2")" = waiting ]; then
            phase nothing
            if [ -e "$at/kubeconfig.cut" ]; then mv "$at/kubeconfig.cut" "$at/kubeconfig"; fi
            say back
        else mv "$at/phase.$2" "$at/phase"; fi
    fi ;;
verify)
    for word in "$@"; do [ "$word" = --watch ] && exec tail -n +1 -f "$at/watch.jsonl"; done
    echo '{"kind":"verify","holds":true,"verdicts":[{"subject":"NET0#0","attribute":"vlan","wanted":"1","seen":"1","outcome":"pass","best_effort":false,"out_of_sight":false,"emulated":false}]}'
    exit "$(have verify.exit 0)" ;;
confirm)
    case "$(have phase nothing)" in
    waiting)
        if [ -e "$at/drifts" ]; then head -n 1 "$at/watch.jsonl" > "$at/watch.part" && mv "$at/watch.part" "$at/watch.jsonl"; fi
        phase applied; say confirmed; echo '{"kind":"confirm"}' ;;
    applied) echo '{"kind":"confirm"}' ;;
    *) echo '{"kind":"error","errors":[{"message":"too late: nobody confirmed it in time","causes":[],"hints":[]}]}'; exit 1 ;;
    esac ;;
undo)
    if [ "$2" != --list ]; then phase nothing; say undone; echo '{"kind":"undo"}'; exit; fi
    run=$(have run 0)
    now=$(have phase nothing)
    # `lapsed`: nobody had confirmed it when the machine was reset.
    case "$now" in waiting) left=applied; waits=true ;; lapsed) left=applied; waits=false ;; *) left=$now; waits=false ;; esac
    if [ "$run" = 0 ]; then echo '{"kind":"runs","runs":[]}'; else
        echo "{\"kind\":\"runs\",\"runs\":[{\"run\":$run,\"purpose\":\"apply\",\"command\":[\"penstock\",\"apply\",\"$(have model)\"],\"running\":false,\"phase\":\"$left\",\"waits_for_confirmation\":$waits}]}"
    fi ;;
*) exit 2 ;;
esac

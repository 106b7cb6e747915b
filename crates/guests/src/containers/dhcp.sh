# Starts a DHCP client inside a container: what `penstock` has a shell there run, once per interface. $1 is the interface, $2 the metric of the
# lease's routes, $3 `yes` where the name servers of the lease go into /etc/resolv.conf, $4 the addresses of IPv4 that the model gives the
# container, $5 what the client runs (dhcp-event.sh).
#
# Does not wait for a lease: says `client CLIENT`. The client stays in the foreground of nobody, asks until it has an answer, and ends with the
# container.
set -u
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
at=/run/penstock-dhcp
note=$at/lease.$1 event=$at/event.$1 log=$at/log.$1 number=$at/pid.$1
# A word of a script: the kernel lets anything but spaces and slashes be in the name of an interface.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
umask 022
mkdir -p "$at" || exit 1
command -v ip >/dev/null || {
    echo "there is no program ip inside"
    exit 1
}
client=
for name in udhcpc dhcpcd dhclient; do
    # It sets addresses itself: one of the model that a server answers with would become the lease's, and end with it.
    [ "$name" != dhcpcd ] || [ -z "$4" ] || continue
    if command -v "$name" >/dev/null; then
        client=$name
        break
    fi
done
if [ -z "$client" ] && busybox udhcpc --help >/dev/null 2>&1; then
    client=busybox
fi
[ -n "$client" ] || {
    echo "there is no DHCP client inside that can be taken: none of udhcpc, dhclient and dhcpcd, the last of which is not taken beside fixed" \
        "addresses of IPv4, and no busybox with the first"
    exit 1
}
# Whoever started one may have died since: the client lives on. Of one that has ended nothing is on its command line.
pid=$(cat "$number" 2>/dev/null)
case $pid in
'' | *[!0-9]*) ;;
*)
    case $(cat "/proc/$pid/cmdline" 2>/dev/null) in
    *"$client"*)
        echo "client $client"
        exit 0
        ;;
    esac
    ;;
esac
{
    echo "#!/bin/sh"
    echo "PATH=$PATH"
    echo "client=$client interface=$(quoted "$1") metric=$2 resolver=$3 fixed='$4' resolv=/etc/resolv.conf"
    echo "note=$(quoted "$note") new=$(quoted "$at/new.$1") log=$(quoted "$log")"
    printf '%s\n' "$5"
} >"$event" || exit 1
chmod 755 "$event" || exit 1
: >"$log"
case $client in
udhcpc | busybox)
    program=udhcpc
    [ $client = udhcpc ] || program="busybox udhcpc"
    # -o: nothing but these is asked for. Without -n and -b it asks again, 5 s after each three questions that nobody has answered.
    # shellcheck disable=SC2086 # two words
    $program -f -i "$1" -t 3 -T 3 -A 5 -o -O subnet -O router -O dns -O domain -O search -s "$event" </dev/null >>"$log" 2>&1 &
    ;;
dhcpcd)
    # -O: it would set these itself, also where nobody asked for them. -t 0: for ever.
    dhcpcd -4 -B -t 0 -f /dev/null -c "$event" -m "$2" -L -o subnet_mask -o routers -o domain_name_servers -o domain_name \
        -o domain_search -O classless_static_routes -O ms_classless_static_routes -O static_routes -O interface_mtu "$1" \
        </dev/null >>"$log" 2>&1 &
    ;;
dhclient)
    printf 'timeout 15;\nretry 5;\nbackoff-cutoff 8;\nrequest subnet-mask, routers, domain-name-servers, domain-name, domain-search;\n' \
        >"$at/conf.$1"
    dhclient -4 -d -q -sf "$event" -cf "$at/conf.$1" -lf "$at/leases.$1" -pf "$at/own.$1" "$1" </dev/null >>"$log" 2>&1 &
    ;;
esac
echo $! >"$number" || exit 1
echo "client $client"

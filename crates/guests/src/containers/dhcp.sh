# Asks for a lease of IPv4 inside a container: what `penstock` has a shell there run. $1 is the interface, $2 the metric of the lease's
# default route, $3 `yes` where the name servers of the lease go into /etc/resolv.conf.
#
# Says `lease CLIENT ADDRESS/LENGTH ROUTER` in the end. The client goes on by itself and ends with the container. Whatever it is, of an answer
# it takes the address, a router, and name servers with their domains: no host name, and no other routes. What comes of that is bounded to the
# container by its namespaces.
set -u
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
interface=$1
at=/run/penstock-dhcp
lease=$at/lease.$1 event=$at/event.$1 log=$at/log.$1
# A word of a script: the kernel lets anything but spaces and slashes be in the name of an interface.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
umask 022
mkdir -p "$at" || exit 1
# Whoever asked before may have died since: the client lives on.
if [ -s "$lease" ]; then
    cat "$lease"
    exit 0
fi
command -v ip >/dev/null || {
    echo "there is no program ip inside"
    exit 1
}
client=
for name in udhcpc dhcpcd dhclient; do
    if command -v "$name" >/dev/null; then
        client=$name
        break
    fi
done
if [ -z "$client" ] && busybox udhcpc --help >/dev/null 2>&1; then
    client=busybox
fi
[ -n "$client" ] || {
    echo "there is no DHCP client inside: none of udhcpc, dhcpcd, dhclient, and no busybox with the first"
    exit 1
}

# What the client runs when it has a lease, has renewed it, or has lost it.
{
    echo "#!/bin/sh"
    echo "client=$client interface=$(quoted "$1") metric=$2 resolver=$3 lease=$(quoted "$lease")"
    cat <<'END'
set -uf
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
export PATH
what=${1:-${reason:-}}
address=${ip:-${new_ip_address:-}}
length=${mask:-${new_subnet_cidr:-${new_subnet_mask:-}}}
routers=${router:-${new_routers:-}}
servers=${dns:-${new_domain_name_servers:-}}
domains=${search:-${new_domain_search:-${domain:-${new_domain_name:-}}}}

# Bytes of an answer are whose who sent it.
is_number() { case $1 in '' | *[!0-9.]*) return 1 ;; esac; }
is_domain() {
    case $1 in '' | .* | -* | *..* | *[!A-Za-z0-9._-]*) return 1 ;; esac
    [ "${#1}" -le 253 ]
}
# dhcpcd sets addresses and routes itself.
run() { [ "$client" = dhcpcd ] || ip -4 "$@"; }
old() { sed -n 's/^lease [^ ]* \([^ ]*\) .*/\1/p' "$lease" 2>/dev/null; }
forget() {
    before=$(old)
    run route del default dev "$interface" metric "$metric" 2>/dev/null
    [ -z "$before" ] || run address del "$before" dev "$interface" 2>/dev/null
    rm -f "$lease"
}
resolve() {
    text='' count=0
    for server in $servers; do
        is_number "$server" && [ $count -lt 3 ] || continue
        text="${text}nameserver $server
" count=$((count + 1))
    done
    [ $count -gt 0 ] || return
    found='' count=0
    for domain in $domains; do
        domain=${domain%.}
        is_domain "$domain" && [ $count -lt 6 ] && [ $((${#found} + ${#domain})) -lt 255 ] || continue
        found="$found $domain" count=$((count + 1))
    done
    [ -z "$found" ] || text="${text}search$found
"
    printf '# Of the lease of %s.\n%s' "$interface" "$text" >/etc/resolv.conf
}
case $what in
bound | renew | BOUND | RENEW | REBIND | REBOOT) ;;
deconfig | EXPIRE | FAIL | RELEASE | STOP | STOPPED)
    forget
    exit 0
    ;;
# An older lease is nothing that anybody has answered for.
TIMEOUT) exit 1 ;;
*) exit 0 ;;
esac
is_number "$address" && is_number "$length" || exit 1
before=$(old)
if [ -n "$before" ] && [ "$before" != "$address/$length" ]; then
    forget
fi
run address replace "$address/$length" brd + dev "$interface" || exit 1
router=none
for one in $routers; do
    is_number "$one" || continue
    run route replace default via "$one" dev "$interface" metric "$metric" 2>/dev/null && router=$one && break
done
[ "$resolver" != yes ] || resolve
printf 'lease %s %s/%s %s\n' "$client" "$address" "$length" "$router" >"$lease.new" && mv "$lease.new" "$lease"
END
} >"$event" || exit 1
chmod 755 "$event"

case $client in
udhcpc | busybox)
    program=udhcpc
    [ $client = udhcpc ] || program="busybox udhcpc"
    # -n: it ends without a lease. -o: nothing but these is asked for.
    # shellcheck disable=SC2086 # two words
    $program -i "$interface" -n -t 4 -T 3 -o -O subnet -O router -O dns -O domain -O search -p "$at/pid.$interface" -s "$event"
    ;;
dhcpcd)
    # -O: it would set these itself, also where nobody asked for them.
    dhcpcd -4 -w -t 15 -f /dev/null -c "$event" -m "$2" -L -o subnet_mask -o routers -o domain_name_servers -o domain_name \
        -o domain_search -O classless_static_routes -O ms_classless_static_routes -O static_routes -O interface_mtu "$interface"
    ;;
dhclient)
    printf 'timeout 15;\nrequest subnet-mask, routers, domain-name-servers, domain-name, domain-search;\n' >"$at/conf.$interface"
    dhclient -4 -1 -sf "$event" -cf "$at/conf.$interface" -lf "$at/leases.$interface" -pf "$at/pid.$interface" "$interface"
    ;;
esac </dev/null >"$log" 2>&1
status=$?
if [ $status = 0 ] && [ -s "$lease" ]; then
    cat "$lease"
    exit 0
fi
echo "$client has no lease (status $status):" $(tail -n 3 "$log")
exit 1

# What a DHCP client inside a container runs when it has a lease, has renewed it, or has lost it; dhcp.sh puts the lines before that say for
# whom. Notes `lease CLIENT ADDRESS/LENGTH ROUTER`.
#
# Whatever the client is, of an answer it takes the address for as long as the lease is, a router, and name servers with their domains: no host
# name, and no other routes. What comes of that is bounded to the container by its namespaces.
# shellcheck shell=sh disable=SC2154 # what dhcp.sh and the client set
set -uf
export PATH
what=${1:-${reason:-}}
address=${ip:-${new_ip_address:-}}
length=${mask:-${new_subnet_cidr:-${new_subnet_mask:-}}}
# Where a server does not say it, udhcpc goes by an hour.
seconds=${lease:-${new_dhcp_lease_time:-3600}}
routers=${router:-${new_routers:-}}
servers=${dns:-${new_domain_name_servers:-}}
domains=${search:-${new_domain_search:-${domain:-${new_domain_name:-}}}}

say() { echo "$*" >>"$log"; }
# dhcpcd sets addresses and routes itself.
run() { [ "$client" = dhcpcd ] || ip -4 "$@"; }
old() { sed -n 's/^lease [^ ]* \([^ ]*\) .*/\1/p' "$note" 2>/dev/null; }
forget() {
    before=$(old)
    run route del default dev "$interface" metric "$metric" 2>/dev/null
    [ -z "$before" ] || run address del "$before" dev "$interface" 2>/dev/null
    rm -f "$note"
}
refuse() {
    forget
    # dhcpcd has set the address by then. It is the only one: dhcpcd is not taken where the model gives the container one.
    [ "$client" != dhcpcd ] || ip -4 address flush dev "$interface" scope global 2>>"$log"
    say "an answer is not taken: $*"
    exit 1
}

# Bytes of an answer are whose who sent it.
is_number() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
    [ ${#1} -le 10 ]
}
is_octet() { is_number "$1" && [ ${#1} -le 3 ] && [ "$1" -le 255 ]; }
# An address of IPv4 that a host may have: the kernel takes 0.0.0.0 as a gateway for none.
is_host() {
    case $1 in *[!0-9.]* | *.) return 1 ;; esac
    split "$1" && [ "$first" -ne 0 ] && [ "$first" -ne 127 ] && [ "$first" -lt 224 ]
}
split() {
    spaces=$IFS IFS=.
    # shellcheck disable=SC2086 # its parts
    set -- $1
    IFS=$spaces
    [ $# = 4 ] && is_octet "$1" && is_octet "$2" && is_octet "$3" && is_octet "$4" || return 1
    first=$1 octets="$1 $2 $3 $4"
}
is_domain() {
    case $1 in '' | .* | -* | *..* | *[!A-Za-z0-9._-]*) return 1 ;; esac
    [ "${#1}" -le 253 ]
}
# The length of the network: a number, a mask, or none, as of old.
bits() {
    case $length in
    '')
        split "$address"
        length=24
        [ "$first" -ge 192 ] || length=16
        [ "$first" -ge 128 ] || length=8
        ;;
    *.*)
        case $length in *[!0-9.]*) return 1 ;; esac
        split "$length" || return 1
        length=0 ended=''
        for octet in $octets; do
            [ -z "$ended" ] || [ "$octet" = 0 ] || return 1
            case $octet in
            255) length=$((length + 8)) && continue ;;
            254) length=$((length + 7)) ;;
            252) length=$((length + 6)) ;;
            248) length=$((length + 5)) ;;
            240) length=$((length + 4)) ;;
            224) length=$((length + 3)) ;;
            192) length=$((length + 2)) ;;
            128) length=$((length + 1)) ;;
            0) ;;
            *) return 1 ;;
            esac
            ended=yes
        done
        ;;
    *) is_octet "$length" || return 1 ;;
    esac
    # A shorter one would lead a good part of all addresses to this link.
    [ "$length" -ge 8 ] && [ "$length" -le 32 ]
}
resolve() {
    text='' count=0
    for server in $servers; do
        is_host "$server" && [ $count -lt 3 ] || continue
        text="${text}nameserver $server
" count=$((count + 1))
    done
    [ $count -gt 0 ] || return
    found='' count=0
    for domain in $domains; do
        domain=${domain%.}
        # What udhcpc has in the place of one that it does not like.
        case $client$domain in udhcpcbad | busyboxbad) continue ;; esac
        is_domain "$domain" && [ $count -lt 6 ] && [ $((${#found} + ${#domain})) -lt 255 ] || continue
        found="$found $domain" count=$((count + 1))
    done
    [ -z "$found" ] || text="${text}search$found
"
    printf '# Of the lease of %s.\n%s' "$interface" "$text" >"$resolv"
}
case $what in
bound | renew | BOUND | RENEW | REBIND | REBOOT) ;;
deconfig | EXPIRE | RELEASE | STOP | STOPPED)
    forget
    exit 0
    ;;
# The client goes on for as long as it takes: what it says must not fill the memory.
FAIL | leasefail)
    [ "$what" = leasefail ] || forget
    echo "nobody has answered, and it is asked again" >"$log"
    exit 0
    ;;
nak | NAK)
    echo "a server has refused what it was asked for, and it is asked again" >"$log"
    exit 0
    ;;
# An older lease is nothing that anybody has answered for.
TIMEOUT)
    echo "nobody has answered, and it is asked again" >"$log"
    exit 1
    ;;
*) exit 0 ;;
esac
: >"$log"
is_host "$address" || refuse "its address is none that a host may have"
bits || refuse "$address has no length of a network from 8 to 32"
is_number "$seconds" && [ "$seconds" -gt 0 ] || refuse "$address is for no time"
[ "$seconds" -lt 4294967295 ] || seconds=forever
for one in $fixed; do
    [ "$one" != "$address" ] || refuse "$address is an address that the model gives this container"
done
had=$(old)
if [ -n "$had" ] && [ "$had" != "$address/$length" ]; then
    forget
fi
# The kernel ends it with the lease, whatever becomes of the client. Some `ip` know no metric of an address.
keep() { run address replace "$address/$length" brd + dev "$interface" valid_lft "$seconds" preferred_lft "$seconds" "$@" 2>>"$log"; }
keep metric "$metric" || keep || refuse "$address/$length cannot be set for $seconds s"
router=none
for one in $routers; do
    if is_host "$one"; then
        router=$one
        break
    fi
done
if [ "$router" = none ]; then
    run route del default dev "$interface" metric "$metric" 2>/dev/null
else
    # With this source it goes when the address does.
    lead() { run route replace default via "$router" dev "$interface" src "$address" metric "$metric" "$@" 2>>"$log"; }
    # Hosters lease single addresses, with a router that is in no network of them.
    lead || lead onlink || say "the router $router cannot be set"
fi
[ "$resolver" != yes ] || resolve
printf 'lease %s %s/%s %s\n' "$client" "$address" "$length" "$router" >"$new" && mv "$new" "$note"

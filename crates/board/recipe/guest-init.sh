#!/bin/busybox sh
# First process of the builtin guest. Sets its NICs up as /penstock/interfaces says, which whoever started the VM has
# put into a second archive behind this one, and says on the console what became of them:
#
#   penstock-guest: begin
#   penstock-nic: NAME MAC up|down MTU ADDRESS...      one line for each NIC, as the kernel has it
#   penstock-guest: ready
#
# Any guest may print these lines; an RTOS without an agent is looked into by them. /penstock/interfaces holds a line for
# each NIC: MAC NAME MTU ADDRESS..., an MTU of - is left alone; /penstock/routes the words of ip(8) for each route.
export PATH=/penstock/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
# An address that is set is used at once, and none is taken from anybody else.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_ra
[ -s /penstock/hostname ] && hostname -F /penstock/hostname
ip link set lo up

# One process for all drivers that any device asks for.
aliases=
for file in /sys/bus/pci/devices/*/modalias /sys/bus/virtio/devices/*/modalias; do
    [ -e "$file" ] && read -r alias <"$file" && aliases="$aliases $alias"
done
# shellcheck disable=SC2086 # a word for each
modprobe -qa $aliases 2>/dev/null

# The name of the NIC with the address $1 in $found; false when there is none.
find_nic() {
    for directory in /sys/class/net/*; do
        [ -e "$directory/device" ] && read -r mac <"$directory/address" && [ "$mac" = "$1" ] &&
            found=${directory##*/} && return 0
    done
    return 1
}

# Waits for the NIC with the address $1 and gives it the name $2 for now: what it is to be called may be the name that the
# kernel gave to another. $tries is shared, so that many absent NICs take no longer than one.
tries=0
find_and_park() {
    while ! find_nic "$1"; do
        tries=$((tries + 1))
        if [ $tries -gt 400 ]; then
            echo "penstock-guest: no NIC has the address $1 ($3)"
            return
        fi
        usleep 50000
    done
    ip link set "$found" name "$2"
}
set_up() {
    find_nic "$1" || return
    name=$2 mtu=$3
    shift 3
    ip link set "$found" name "$name"
    [ "$mtu" = - ] || ip link set "$name" mtu "$mtu"
    ip link set "$name" up
    for address; do ip addr add "$address" dev "$name"; done
}
if [ -e /penstock/interfaces ]; then
    number=0
    while read -r mac name _; do
        number=$((number + 1))
        [ -n "$mac" ] && find_and_park "$mac" "parked$number" "$name"
    done </penstock/interfaces
    while read -r mac name mtu addresses; do
        # shellcheck disable=SC2086 # a word for each
        [ -n "$mac" ] && set_up "$mac" "$name" "$mtu" $addresses
    done </penstock/interfaces
fi
# The words of `ip` for each route, a line: a gateway may be in a network of an interface that comes later.
if [ -e /penstock/routes ]; then
    while read -r words; do
        # shellcheck disable=SC2086 # a word for each
        [ -n "$words" ] && { ip $words || echo "penstock-guest: no route: ip $words"; }
    done </penstock/routes
fi

for port in /sys/class/virtio-ports/*; do
    [ -e "$port/name" ] && read -r name <"$port/name" && [ "$name" = org.qemu.guest_agent.0 ] || continue
    mkdir -p /run/qemu-ga
    # As an init system does: an agent that ends is started again.
    while :; do
        qemu-ga -m virtio-serial -p "/dev/${port##*/}" -t /run/qemu-ga -f /run/qemu-ga.pid -l /run/qemu-ga.log
        sleep 1
    done >/dev/null 2>&1 &
done

# Prints the line of the NIC $1.
report() {
    read -r mac <"/sys/class/net/$1/address"
    read -r mtu <"/sys/class/net/$1/mtu"
    read -r flags <"/sys/class/net/$1/flags"
    state=down
    [ $((flags & 1)) = 1 ] && state=up
    line="penstock-nic: $1 $mac $state $mtu"
    # "2: eth0    inet 192.0.2.1/24 scope global eth0"
    while read -r _ _ family address _; do
        case $family in inet | inet6) line="$line $address" ;; esac
    done <<END
$(ip -o addr show dev "$1")
END
    echo "$line"
}
echo "penstock-guest: begin"
for directory in /sys/class/net/*; do
    [ -e "$directory/device" ] && report "${directory##*/}"
done
echo "penstock-guest: ready"
exec /sbin/init

#!/bin/sh
# Made at each start. LXC runs it on the host when the guest's interfaces are inside, before its first process.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
exec >/run/penstock/guests/penstock-linux-2/start.log 2>&1
set -e
say() { echo "# $*"; }
inside() { nsenter -t "$LXC_PID" -n -- "$@"; }
back() {
    inside ip link set dev 'eth0' down
    inside ip link set dev 'eth0' netns $$ name 'a'
    inside ip link set dev 'eth1' down
    inside ip link set dev 'eth1' netns $$ name 'b'
    inside ip link set dev 'it'\''s$0' down
    inside ip link set dev 'it'\''s$0' netns $$ name 'c'
}
trap '[ $? = 0 ] || { set +e; back; } >/dev/null 2>&1' EXIT
say egress_rate 'eth0'
inside tc qdisc replace dev 'eth0' root handle 1: tbf rate 12500000bps burst 125000 limit 750000
inside tc qdisc add dev 'eth0' parent 1:1 handle 10: fq_codel 2>/dev/null || :
say ingress_rate 'eth0'
modprobe -q ifb numifbs=0 2>/dev/null || :
inside ip link add name penstock-in0 type ifb
inside ip link set dev penstock-in0 addrgenmode none up
inside tc qdisc replace dev penstock-in0 root handle 1: tbf rate 312500000bps burst 312500 limit 15937500
inside tc qdisc add dev penstock-in0 parent 1:1 handle 10: fq_codel 2>/dev/null || :
inside tc qdisc replace dev 'eth0' ingress
inside tc filter add dev 'eth0' parent ffff: protocol all pref 1 matchall action mirred egress redirect dev penstock-in0 2>/dev/null ||
    inside tc filter add dev 'eth0' parent ffff: protocol all pref 1 u32 match u32 0 0 action mirred egress redirect dev penstock-in0
say route 'eth0' default via 192.0.2.1
inside ip -4 route add default via 192.0.2.1 dev 'eth0'
say route 'eth0' fd00:1::/64
inside ip -6 route add fd00:1::/64 dev 'eth0' metric 50
say egress_rate 'it'\''s$0'
inside tc qdisc replace dev 'it'\''s$0' root handle 1: tbf rate 125000bps burst 20000 limit 26250
inside tc qdisc add dev 'it'\''s$0' parent 1:1 handle 10: fq_codel 2>/dev/null || :
echo '# done'

# Runs a line of shell in a Debian tree as one of its users: enter.sh TREE USER LINE [FROM AT]...
#
# The tree is the root of a mount namespace and not of a chroot, in which the kernel makes no user namespaces. Each FROM of this
# machine is seen, and not written to, at AT.
set -eu
tree=$1 user=$2 line=$3
shift 3
mount --bind "$tree" "$tree"
while [ $# -gt 0 ]; do
    mkdir -p "$tree$2"
    mount --bind "$1" "$tree$2"
    mount -o remount,bind,ro "$tree$2"
    shift 2
done
cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
cd "$tree"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mkdir -p before
pivot_root . before
umount -l before
entry=$(getent passwd "$user")
home=$(echo "$entry" | cut -d: -f6)
path=/usr/local/bin:/usr/bin:/bin:/opt/rust/bin
[ "$user" != root ] || path=/usr/local/sbin:/usr/sbin:/sbin:$path
# Without a process of this machine's above it that could be signalled, and with nothing of this machine's environment.
cd "$home"
exec setpriv --reuid="$user" --regid="$user" --init-groups \
    env -i HOME="$home" USER="$user" PATH="$path" LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive NO_COLOR=1 sh -c "$line"

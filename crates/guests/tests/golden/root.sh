#!/bin/sh
# The root of container linux-2: the host's programs and libraries, and nothing else of it.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
mount -t tmpfs -o nosuid,nodev,mode=755,size=512m penstock /run/penstock/guests/penstock-linux-2/root
cd /run/penstock/guests/penstock-linux-2/root
mkdir dev etc home media mnt proc root run srv sys tmp var var/cache var/lib var/log var/tmp
chmod 700 root
chmod 1777 tmp var/tmp
ln -s ../run var/run
ln -s ../run/lock var/lock
for name in usr bin sbin lib lib32 lib64 libx32 opt nix; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$name"
    elif [ -d "/$name" ]; then
        mkdir "$name"
        mount --rbind "/$name" "$name"
    fi
done
here=$(pwd -P)
while read -r _ _ _ _ at _; do
    case $at in
    "$here"/*) mount -o remount,bind,ro,nosuid,nodev "$(printf '%b' "$at")" ;;
    esac
done </proc/self/mountinfo
set --
for name in bash.bashrc bindresvport.blacklist debian_version ethertypes gai.conf host.conf inputrc ld.so.cache ld.so.conf libaudit.conf locale.alias locale.conf localtime login.defs mime.types netconfig networks nsswitch.conf os-release profile protocols resolv.conf rpc services shells timezone; do [ ! -f "/etc/$name" ] || set -- "$@" "/etc/$name"; done
[ $# = 0 ] || { mkdir -p etc; cp -L "$@" etc/ 2>/dev/null || :; }
set --
for name in openssl.cnf; do [ ! -f "/etc/pki/tls/$name" ] || set -- "$@" "/etc/pki/tls/$name"; done
[ $# = 0 ] || { mkdir -p etc/pki/tls; cp -L "$@" etc/pki/tls/ 2>/dev/null || :; }
set --
for name in openssl.cnf; do [ ! -f "/etc/ssl/$name" ] || set -- "$@" "/etc/ssl/$name"; done
[ $# = 0 ] || { mkdir -p etc/ssl; cp -L "$@" etc/ssl/ 2>/dev/null || :; }
set --
for name in alternatives crypto-policies iproute2 ld.so.conf.d libibverbs.d skel terminfo; do [ ! -d "/etc/$name" ] || set -- "$@" "/etc/$name"; done
[ $# = 0 ] || { mkdir -p etc; cp -RH "$@" etc/ 2>/dev/null || :; }
set --
for name in ca-trust; do [ ! -d "/etc/pki/$name" ] || set -- "$@" "/etc/pki/$name"; done
[ $# = 0 ] || { mkdir -p etc/pki; cp -RH "$@" etc/pki/ 2>/dev/null || :; }
set --
for name in certs; do [ ! -d "/etc/pki/tls/$name" ] || set -- "$@" "/etc/pki/tls/$name"; done
[ $# = 0 ] || { mkdir -p etc/pki/tls; cp -RH "$@" etc/pki/tls/ 2>/dev/null || :; }
set --
for name in certs; do [ ! -d "/etc/ssl/$name" ] || set -- "$@" "/etc/ssl/$name"; done
[ $# = 0 ] || { mkdir -p etc/ssl; cp -RH "$@" etc/ssl/ 2>/dev/null || :; }
echo linux-2 >etc/hostname
printf '127.0.0.1 localhost linux-2\n::1 localhost\n' >etc/hosts
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >etc/passwd
printf 'root:x:0:\ntty:x:5:\nnogroup:x:65534:\n' >etc/group
ln -s /proc/self/mounts etc/mtab

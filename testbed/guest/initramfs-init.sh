#!/bin/sh
# First program of a guest: load what leads to the disk, mount it, take along the guest's own files, hand over.
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in $(cat /modules/order); do insmod "/modules/$module"; done
tries=0
while [ ! -b /dev/vda ] && [ "$tries" -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
mount -t ext4 -o rw /dev/vda /root || { echo "GROUND no root file system"; poweroff -f; }
mount -t tmpfs -o mode=755 run /root/run
mkdir -p /root/run/guest
cp -a /guest/. /root/run/guest/
umount /proc
exec switch_root /root /run/guest/init

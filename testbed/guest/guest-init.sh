#!/bin/busybox sh
# Process 1 of a guest node: mounts, network, containerd, kubelet, and a root shell on the second serial port.
export PATH=/usr/sbin:/usr/bin HOME=/root
. /run/guest/settings

say() { read -r up _ </proc/uptime; echo "GROUND $1 at $up s"; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs tmp /tmp
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
mount --make-rshared /
mount -t ext4 -o rw /dev/vdb /var/lib/containerd
# Newer kernels are built without the first version's memory and cpuset groups, so the second it is, everywhere.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/init
echo 1 >/sys/fs/cgroup/init/cgroup.procs

# Commands come as lines "ID SECONDS BASE64"; the answer is "[ID STATUS", the output in base64, and "ID]".
serve_commands() {
    stty raw -echo <&3
    while read -r id seconds command <&3; do
        [ -n "$command" ] || continue
        answer=/tmp/command.$id
        echo "$command" | base64 -d >"$answer.sh"
        timeout "$seconds" sh "$answer.sh" >"$answer" 2>&1 </dev/null
        status=$?
        { echo "[$id $status"; base64 <"$answer"; echo "$id]"; } >&3
        rm -f "$answer" "$answer.sh"
    done
}
(while :; do serve_commands 3<>/dev/ttyS1; sleep 0.2; done) &

for module in virtio_pci virtio_net overlay; do modprobe "$module"; done
hostname "$NODE_NAME"
echo "$MACHINE_ID" >/etc/machine-id
ifconfig lo 127.0.0.1 up
ifconfig eth0 "$NODE_IP" netmask 255.255.255.0 up
# No default route: kubelet would look for a cloud's metadata service for a long time.
echo 1 >/proc/sys/net/ipv4/ip_forward
say network

# Pods reach the API server as they do on the host: on 127.0.0.1, under the name that its certificate carries.
socat "TCP-LISTEN:$API_PORT,bind=127.0.0.1,fork,reuseaddr" "TCP:$HOST_IP:$API_PORT" 2>/var/log/socat.log &

containerd --config /run/guest/containerd.toml >/var/log/containerd.log 2>&1 &
while [ ! -S /run/containerd/containerd.sock ]; do sleep 0.1; done
say containerd

(
    while :; do
        kubelet --kubeconfig=/run/guest/kubeconfig --config=/run/guest/kubelet.json --hostname-override="$NODE_NAME" \
            --node-ip="$NODE_IP" --cert-dir=/run/kubelet-pki \
            --container-runtime-endpoint=unix:///run/containerd/containerd.sock $KUBELET_FLAGS
        echo "kubelet ended with $?"
        sleep 1
    done >>/var/log/kubelet.log 2>&1
) &
say kubelet

seconds_up() {
    read -r seconds _ </proc/uptime
    seconds=${seconds%.*}
}

# Kernel threads have no command line, and process 1 is this one.
processes_left() {
    for process in /proc/[0-9]*; do
        [ "$process" != /proc/1 ] && read -r _ <"$process/cmdline" && return 0
    done 2>/dev/null
    return 1
}

# kill -1 reaches every process but this one; those in containers get their chance to unload a driver.
power_off() {
    killall kubelet
    kill -TERM -1
    seconds_up
    deadline=$((seconds + 3))
    while processes_left && [ "$seconds" -lt "$deadline" ]; do
        sleep 0.1
        seconds_up
    done
    kill -KILL -1
    sleep 0.1
    sync
    mount -o remount,ro /var/lib/containerd
    mount -o remount,ro /
    say "power-off"
    poweroff -f
}
trap power_off USR2 TERM
while :; do wait; sleep 1; done

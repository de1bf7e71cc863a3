#!/bin/busybox sh
# The first process of the test machine: brings up what the tests need, runs them, and turns the machine off.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
export ENGINETAP_BIN=/bin/enginetap ENGINETAP_PYTHONS="$(readlink -f /bin/python3)"
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs tracing /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
echo "vm-test: kernel $(uname -r)"
for program in /tests/*; do
    echo "vm-test: program ${program##*/}"
    "$program" --test-threads=1 $(cat /filter)
done
echo "vm-test: over"
poweroff -f

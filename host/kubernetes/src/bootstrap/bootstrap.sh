#!/bin/sh
# Prepares the container of a server or an agent of the orchestrator, then becomes the command that
# it is given. The daemon ships this script; BOOTSTRAP_URL names another one.
set -eu

sandbox=${MESOS_SANDBOX:-/mnt/mesos/sandbox}

# The service reads the client configuration from the sandbox.
if [ "${K3SFRAMEWORK_TYPE:-}" = server ]; then
    export K3S_KUBECONFIG_OUTPUT="${K3S_KUBECONFIG_OUTPUT:-$sandbox/k3s.yaml}"
    if [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$K3S_KUBECONFIG_OUTPUT" ] && [ ! -e "$KUBECONFIG" ]; then
        mkdir -p "$(dirname "$KUBECONFIG")" 2>/dev/null && ln -sf "$K3S_KUBECONFIG_OUTPUT" "$KUBECONFIG" || true
    fi
fi

# With cgroup v2 a cgroup that has processes cannot pass its controllers on, so they move down.
if [ "$$" = 1 ] && [ -f /sys/fs/cgroup/cgroup.controllers ] && [ -w /sys/fs/cgroup/cgroup.subtree_control ]; then
    mkdir -p /sys/fs/cgroup/init
    while read -r process; do
        echo "$process" > /sys/fs/cgroup/init/cgroup.procs 2>/dev/null || true
    done < /sys/fs/cgroup/cgroup.procs
    sed -e 's/ / +/g' -e 's/^/+/' < /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control || true
fi

# An image may lack the program. The release is checked against its list of digests.
program=${1:?expected the command of the server or agent as arguments}
if ! command -v "$program" > /dev/null 2>&1; then
    case $(uname -m) in
        x86_64) binary=k3s digests=sha256sum-amd64.txt ;;
        aarch64) binary=k3s-arm64 digests=sha256sum-arm64.txt ;;
        *) echo "bootstrap: no release of k3s for $(uname -m)" >&2; exit 1 ;;
    esac
    release="${K3S_RELEASES:-https://github.com/k3s-io/k3s/releases/download}/${KUBERNETES_VERSION:?}%2Bk3s1"
    echo "bootstrap: $program is missing; fetching $release/$binary"
    folder=$(mktemp -d)
    for file in "$binary" "$digests"; do
        if command -v curl > /dev/null 2>&1; then
            curl -fsSL --retry 3 -o "$folder/$file" "$release/$file"
        else
            wget -q -O "$folder/$file" "$release/$file"
        fi
    done
    (cd "$folder" && grep " $binary\$" "$digests" | sha256sum -c -)
    mkdir -p "$(dirname "$program")"
    mv "$folder/$binary" "$program"
    chmod 755 "$program"
    rm -rf "$folder"
fi

# The kubelet offers pods the resources of the machine, not those of the container, so it reserves the
# difference. K3S_KUBE_RESERVED names other amounts; "none", and options in the command, prevent it.
reserve() {
    case "$program ${2:-}" in */k3s\ agent | */k3s\ server | k3s\ agent | k3s\ server) ;; *) return 1 ;; esac
    case "$*" in *kube-reserved* | *system-reserved*) return 1 ;; esac
    reserved=${K3S_KUBE_RESERVED:-}
    [ "$reserved" != none ] || return 1
    [ -z "$reserved" ] || return 0
    mem=${K3SFRAMEWORK_MEM_MIB:-} cpu=${K3SFRAMEWORK_CPU_MILLIS:-}
    [ -n "$mem" ] && [ -n "$cpu" ] && [ -r /proc/meminfo ] && [ -r /proc/cpuinfo ] || return 1
    while read -r name kib _; do
        [ "$name" != MemTotal: ] || mem=$((kib / 1024 - mem))
    done < /proc/meminfo
    cpu=$(($(grep -c '^processor' /proc/cpuinfo) * 1000 - cpu))
    [ "$mem" -gt 0 ] || mem=0
    [ "$cpu" -gt 0 ] || cpu=0
    reserved="cpu=${cpu}m,memory=${mem}Mi"
}
if reserve "$@"; then
    role=$2
    shift 2
    echo "bootstrap: reserving $reserved for everything but pods"
    set -- "$program" "$role" "--kubelet-arg=kube-reserved=$reserved" "$@"
fi

exec "$@"

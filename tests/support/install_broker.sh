#!/bin/sh
# Brings RabbitMQ, of which the tests use the program only: no system service is started or left enabled.
#
#   install_broker.sh        Debian's own package
#   install_broker.sh 4      RabbitMQ 4 from Debian trixie, unpacked beside the system (400 MB) and entered by chroot; prints where
#
# Needs root, or for the first sudo that asks for no password. Does nothing that is done already.
set -eu

as_root() {
    if [ "$(id -u)" = 0 ]; then env "$@"; else sudo -n env "$@"; fi
}

if [ "${1:-3}" = 4 ]; then
    root=/var/cache/brokerha/rabbitmq-4
    [ "$(id -u)" = 0 ] || { echo "install_broker: RabbitMQ 4 needs root, for chroot" >&2; exit 1; }
    # Several test processes may come at once.
    mkdir -p "$root"
    exec 9>"$root.lock"
    flock 9
    if [ ! -x "$root/usr/lib/rabbitmq/bin/rabbitmq-server" ]; then
        apt=$(mktemp -d)
        trap 'rm -rf "$apt"' EXIT
        mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/state" "$apt/parts"
        : >"$apt/status"
        # The mirrors of this machine, asked for the other release; its security archive is named differently there.
        if [ -f /etc/apt/sources.list.d/debian.sources ]; then
            sed 's/bookworm/trixie/g; s/^Suites:.*/Suites: trixie/' /etc/apt/sources.list.d/debian.sources |
                awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' >"$apt/parts/trixie.sources"
        else
            sed '/security/d; s/bookworm\(-updates\)\{0,1\}/trixie/g' /etc/apt/sources.list | sort -u >"$apt/parts/trixie.list"
        fi
        cat >"$apt/conf" <<CONF
Dir::State "$apt/state"; Dir::State::Lists "$apt/lists"; Dir::State::status "$apt/status";
Dir::Cache "$apt/cache"; Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "$apt/parts";
CONF
        APT_CONFIG=$apt/conf
        export APT_CONFIG
        apt-get -qq -o Acquire::Retries=3 update
        apt-get -qq -y -o Acquire::Retries=3 install --no-install-recommends --download-only rabbitmq-server libc6 libc-bin \
            bash dash coreutils grep sed gawk util-linux procps hostname login passwd base-files </dev/null
        for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
        printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
        printf 'root:x:0:\n' >"$root/etc/group"
        printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
    fi
    # A broker's folder has the same name inside and outside.
    for place in proc dev tmp; do
        mkdir -p "$root/$place"
        mountpoint -q "$root/$place" || mount --bind "/$place" "$root/$place"
    done
    echo "$root"
    exit 0
fi

[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && exit 0
command -v apt-get >/dev/null || { echo "install_broker: this machine has no apt-get" >&2; exit 1; }

# Package scripts ask this file before they start a service; 101 means no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
fi

had_epmd=$(command -v epmd || true)
as_root apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
    install --no-install-recommends rabbitmq-server </dev/null

if command -v systemctl >/dev/null; then
    as_root systemctl -q disable rabbitmq-server.service || true
    [ -n "$had_epmd" ] || as_root systemctl -q disable epmd.socket epmd.service || true
fi
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]

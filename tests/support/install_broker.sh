#!/bin/sh
# Installs Debian's RabbitMQ, of which the tests use the program only: no system service is started or left enabled.
# Needs root, or sudo that asks for no password. Does nothing if the program is there.
set -eu
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && exit 0
command -v apt-get >/dev/null || { echo "install_broker: this machine has no apt-get" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then env "$@"; else sudo -n env "$@"; fi
}

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

#!/bin/sh
# After the package is unpacked: the user of the service. Nothing is started.
set -e
if command -v systemd-sysusers >/dev/null; then systemd-sysusers millrace.conf; fi
if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
exit 0

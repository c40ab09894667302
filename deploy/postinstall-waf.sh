#!/bin/sh
# After the package is unpacked: the service runs millrace-waf from its next start. Nothing is started.
set -e
if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
exit 0

#!/bin/bash
# pack-dpdk.sh FILE.tar.gz: packs dpdk-testpmd, the drivers that suites dpdk and vhost use, and all libraries that they link, for a machine
# without DPDK. There, of another distribution too:
#
#   tar -xzf FILE.tar.gz -C /opt
#   export PATH=/opt/dpdk:$PATH LD_LIBRARY_PATH=/opt/dpdk/lib MILLRACE_DPDK_EAL="-d /opt/dpdk/drivers"
#
# The variables are for Millrace's shim; its C library is the machine's, which must not be older than this one's. dpdk-testpmd comes
# with its own.
set -euo pipefail
drivers="bus_vdev bus_pci mempool_ring net_null net_ring net_af_xdp net_af_packet net_tap net_vhost net_virtio net_memif"
system=/usr/lib/$(uname -m)-linux-gnu
abi=$(basename "$(readlink -f "$system/librte_eal.so")" | sed 's/^librte_eal\.so\.//; s/\..*//')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/dpdk
mkdir -p "$to"/{lib,libc,drivers}

# add copies a file and what it links. The C library goes to a folder of its own: with the dynamic linker of another version it crashes.
add() {
	local file name
	for file in "$1" $(ldd "$1" | grep -o '/[^ ]*'); do
		name=$(basename "$file")
		case $name in
		ld-linux* | libc.so* | libm.so* | libpthread* | libdl.so* | librt.so* | libresolv*) cp -L "$file" "$to/libc/$name" ;;
		dpdk-testpmd) cp -L "$file" "$to/libc/testpmd" ;;
		*) cp -L "$file" "$to/lib/$name" ;;
		esac
	done
}
add "$(command -v dpdk-testpmd)"
add /usr/libexec/coreutils/libstdbuf.so # by which a program's output to a pipe comes at once
for d in $drivers; do
	add "$system/librte_$d.so.$abi"
	ln -s "../lib/librte_$d.so.$abi" "$to/drivers/librte_$d.so"
done
find "$to/lib" -name '*.so*' -exec strip --strip-unneeded {} + 2>/dev/null || true
cat >"$to/dpdk-testpmd" <<'RUN'
#!/bin/sh
at=$(dirname "$(readlink -f "$0")")
preload=
[ -z "${_STDBUF_O:-}" ] || preload=$at/lib/libstdbuf.so
unset LD_PRELOAD
exec "$at"/libc/ld-linux*.so* --preload "$preload" --library-path "$at/lib:$at/libc" "$at/libc/testpmd" -d "$at/drivers" "$@"
RUN
chmod +x "$to/dpdk-testpmd"
tar -C "$work" -czf "$1" dpdk
ls -l "$1"

#!/bin/sh
# Shows that `make dist` gives the same bytes twice, the second time in another folder, that its checksums hold, and, as root, that the
# programs of the tarball, the Debian package and the image of this machine answer a request in a root that has nothing else but /proc.
set -e
arch=$(go env GOHOSTARCH)
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make -s dist DIST_ARCHS="$arch" >"$work/first"
git clone -q . "$work/copy"
mkdir -p "$work/copy/shim/preload/build"
cp shim/preload/build/*.so "$work/copy/shim/preload/build/" 2>/dev/null || true
make -s -C "$work/copy" dist DIST_ARCHS="$arch" | grep -v 'ing directory' >"$work/second"
(cd dist && sha256sum -c --quiet SHA256SUMS)
diff "$work/first" "$work/second"
echo "dist: the same bytes twice"

mkdir "$work/tar" "$work/deb"
tar -xzf dist/millrace-[0-9]*.tar.gz -C "$work/tar" --strip-components=1
if command -v dpkg-deb >/dev/null; then dpkg-deb -x dist/millrace_*.deb "$work/deb"; else cp -r "$work/tar/." "$work/deb"; fi
roots="tar deb"
if command -v skopeo >/dev/null && command -v umoci >/dev/null; then
	skopeo copy --quiet --insecure-policy "oci-archive:$(ls dist/*.oci.tar)" "oci:$work/layout:image"
	umoci unpack --rootless --image "$work/layout:image" "$work/bundle" >/dev/null
	mv "$work/bundle/rootfs" "$work/image"
	roots="$roots image"
else
	echo "note: the image is not unpacked: apt-get install skopeo umoci"
fi
[ "$(id -u)" = 0 ] || { echo "note: not root, so nothing of it is run"; exit 0; }
for root in $roots; do
	mkdir -p "$work/$root/run/millrace"
	unshare -nm "$here/deploy/distserve.sh" "$work/$root" "$work/log"
	echo "dist: the program of $root answers in a root of its own"
done

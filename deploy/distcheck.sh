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
for folder in shim/preload/build rdma/verbs/build; do
	cp $folder/.lib* "$work/copy/$folder/" 2>/dev/null && cp $folder/*.gz "$work/copy/$folder/" || true
done
make -s -C "$work/copy" dist DIST_ARCHS="$arch" | grep -v 'ing directory' >"$work/second"
(cd dist && sha256sum -c --quiet SHA256SUMS)
diff "$work/first" "$work/second"
echo "dist: the same bytes twice"

mkdir "$work/tar" "$work/deb" "$work/waf" "$work/wafdeb"
tar -xzf dist/millrace-[0-9]*.tar.gz -C "$work/tar" --strip-components=1
tar -xzf dist/millrace-waf-*.tar.gz -C "$work/waf" --strip-components=1
if command -v dpkg-deb >/dev/null; then
	dpkg-deb -x dist/millrace_*.deb "$work/deb"
	dpkg-deb -x dist/millrace_*.deb "$work/wafdeb" && dpkg-deb -x dist/millrace-waf_*.deb "$work/wafdeb"
else
	cp -r "$work/tar/." "$work/deb" && cp -r "$work/waf/." "$work/wafdeb"
fi
roots="tar deb waf wafdeb"
if command -v skopeo >/dev/null && command -v umoci >/dev/null; then
	for p in millrace:image millrace-waf:wafimage; do
		name=${p#*:}
		skopeo copy --quiet --insecure-policy "oci-archive:$(ls dist/"${p%:*}"-[0-9]*.oci.tar)" "oci:$work/layout:$name"
		umoci unpack --rootless --image "$work/layout:$name" "$work/bundle-$name" >/dev/null
		mv "$work/bundle-$name/rootfs" "$work/$name"
		roots="$roots $name"
	done
else
	echo "note: the image is not unpacked: apt-get install skopeo umoci"
fi
[ "$(id -u)" = 0 ] || { echo "note: not root, so nothing of it is run"; exit 0; }
for root in $roots; do
	program=millrace
	case $root in waf*)
		program=millrace-waf
		printf '%s\n' 'listeners: [{name: web, address: 127.0.0.1:8080, protocol: HTTP, waf: {rules: crs, mode: prevent}}]' \
			'routes: [{name: all, rules: [{filters: [{type: FixedResponse, status_code: 200, body: "The gateway runs"}]}]}]' >"$work/$root/etc/millrace/gateway.yaml" ;;
	esac
	mkdir -p "$work/$root/run/millrace"
	unshare -nm "$here/deploy/distserve.sh" "$work/$root" "$work/log" $program
	echo "dist: the program of $root answers in a root of its own"
done

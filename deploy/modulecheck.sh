#!/bin/sh
# Shows that `go get` of a tagged module works for users: a module outside requires the root module of this clone's last commit, as a
# proxy serves it, that is without the modules inside of it and without replace directives, lists all its packages, and builds the
# README's example. Nothing is downloaded: the other modules come from the cache of this machine (make deps).
set -e
module=github.com/millrace/millrace
version=v0.0.1-check
readme=$(pwd)/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files of a proxy (https://go.dev/ref/mod#goproxy-protocol). A module zip has no files of nested modules.
files=$work/proxy/$module/@v
mkdir -p "$files" "$work/user"
echo $version >"$files/list"
echo "{\"Version\":\"$version\"}" >"$files/$version.info"
git show HEAD:go.mod >"$files/$version.mod"
git ls-files '*/go.mod' | sed 's|^|:(exclude)|; s|/go.mod$||' | \
	xargs git archive --format=zip --prefix="$module@$version/" -o "$files/$version.zip" HEAD -- .

GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download"
GOMODCACHE=$work/mod
GOFLAGS="-mod=mod -trimpath -modcacherw"
GOWORK=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0
export GOPROXY GOMODCACHE GOFLAGS GOWORK GOSUMDB GOTOOLCHAIN CGO_ENABLED
cd "$work/user"
{
	printf 'package main\n\nimport (\n\t"log"\n\t"net/http"\n\t"net/netip"\n\n\t"%s"\n)\n\nfunc main() {\n' $module
	sed -n '/^```go$/,/^```$/{/^```/!p;}' "$readme"
	echo '}'
} >main.go
go mod init example.test/user 2>/dev/null
go get $module@$version 2>"$work/log" || { cat "$work/log"; exit 1; }
go build -o user . || exit 1
[ -x user ]
# A package that embeds a file which git ignores, or imports a module of this repository, is an error here.
packages=$(go list $module/... 2>"$work/log" | wc -l)
if [ ! "$packages" -gt 100 ] || grep -v '^go: \(downloading\|finding\|added\)' "$work/log"; then
	echo "module: $packages packages"; cat "$work/log"; exit 1
fi
echo "module: the README's example builds outside, and $packages packages are complete"

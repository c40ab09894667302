#!/usr/bin/env bash
# deadcode.sh MODULE...: functions that no program and no test of any of the modules reaches. The first module is the root,
# whose functions others may use; examples that only show something are no dead code.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$(git rev-parse --show-toplevel)
cd "$top"
module=$(go list -m)
go build -modfile=internal/tools/go.mod -o "$work/deadcode" golang.org/x/tools/cmd/deadcode
for m in "$@"; do
	n=${m//\//_}
	(cd "$m" && go list -test -deps ./... | sed 's/ .*//; s/_test$//; s/\.test$//' | sort -u >"$work/loaded.$n" &&
		"$work/deadcode" -test -filter "^$module(/|\$)" -f '{{range .Funcs}}{{$.Path}}.{{.Name}} {{.Position}}{{"\n"}}{{end}}' ./... >"$work/dead.$n")
	# Of another module: what it reaches of the root's packages is alive, and what is dead of its own is dead.
	awk -v module="$module" -v own="$module/$m" -v root="$([ "$m" = "$1" ] && echo 1)" '
		function package(f,    tail) { tail = f; sub(/.*\//, "", tail); sub(/\..*/, "", tail); sub(/[^\/]*$/, "", f); sub(/_test$/, "", tail); return f tail }
		FILENAME ~ /loaded/ { loaded[$1] = 1; next }
		FILENAME ~ /dead\./ { dead[$1] = 1; if (root || index($1, own) == 1) print >candidates; next }
	' candidates="$work/candidates.$n" "$work/loaded.$n" "$work/dead.$n"
done
cat "$work"/candidates.* | grep -v '\.Example' | sort -u | while read -r f position; do
	p=${f##*/} p=${f%/*}/${p%%.*} p=${p%_test}
	for m in "$@"; do
		n=${m//\//_}
		if grep -qxF "$p" "$work/loaded.$n" && ! grep -q "^$f " "$work/dead.$n"; then continue 2; fi
	done
	echo "$position: $f is not reached"
done >"$work/found"
cat "$work/found"
[ ! -s "$work/found" ]

#!/usr/bin/env bash
# changed.sh BASE MODULE: the packages of a module with files that changed since BASE, committed or not, one a line.
# A file that is in no package's folder (testdata, C sources) belongs to the package above it.
set -euo pipefail
base=$1 module=$2
cd "$(git rev-parse --show-toplevel)"
from=$(git merge-base "$base" HEAD) || { echo "make check compares with $base, which is no commit here: BASE=..." >&2; exit 1; }
{ git diff --name-only "$from"; git ls-files --others --exclude-standard; } | while IFS= read -r file; do
	[[ $file != *.mk ]] || continue
	dir=$(dirname "$file")
	until [ "$dir" = . ] || compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
	[ "$dir" != . ] || [[ $file != */* && $file == *.go ]] || continue # no package, or one that is gone
	root=$dir
	until [ -e "$root/go.mod" ]; do root=$(dirname "$root"); done
	[ "$root" = "$module" ] || continue
	echo "./$(realpath --relative-to="$module" "$dir")"
done | sort -u

#!/bin/sh
# Builds the objects of this folder.
set -e
cd "$(dirname "$0")"
for c in *.c; do
	clang-19 -target bpfel -mcpu=v3 -O2 -g -Wall -Werror -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir=. \
		-idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -c "$c" -o "${c%.c}.o"
	llvm-strip-19 -g "${c%.c}.o"
done

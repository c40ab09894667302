# guest.sh - sourced by the scripts beside it: a guest of Debian's kernel, the programs of this machine and nothing else, from which each
# boots its own initial file system. The caller stands in the repository's folder.

# guest_kernel FOLDER PACKAGE: fetches the kernel that PACKAGE depends on into FOLDER, once, and does not install it. The array qemu then has
# the command that boots it.
guest_kernel() {
	deps=$1
	if [ ! -e "$deps/package/boot" ]; then
		mkdir -p "$deps/package"
		local concrete
		concrete=$(apt-cache depends "$2" | sed -n 's/.*Depends: //p')
		(cd "$deps/package" && apt-get download -qq "$concrete" && dpkg -x "$concrete"_*.deb . && rm -f ./*.deb)
	fi
	version=$(ls "$deps/package/lib/modules")
	# An emulated machine: KVM is on few machines of CI.
	qemu=(qemu-system-x86_64 -accel "tcg,thread=multi" -cpu max -nodefaults -no-user-config -no-reboot -display none
		-kernel "$deps/package/boot/vmlinuz-$version" -append 'console=ttyS0 quiet panic=-1 net.ifnames=0')
}

# guest_root FOLDER APPLET...: begins the file system in FOLDER, with programs of busybox.
guest_root() {
	root=$1
	shift
	rm -rf "$root" && mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,modules,etc}
	cp /bin/busybox "$root/bin/"
	local name
	for name in sh mount insmod poweroff "$@"; do ln -s busybox "$root/bin/$name"; done
	echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
}

# guest_copy FOLDER FILE...: copies files of this machine into FOLDER, at their places, with the libraries that they link.
guest_copy() {
	local to=$1 file part
	shift
	for file in "$@"; do
		[ -e "$file" ] || { echo "$file is missing: the target of the Makefile installs it"; exit 1; }
		for part in "$file" $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do
			mkdir -p "$to$(dirname "$part")" && cp -L "$part" "$to$part"
		done
	done
}

# guest_modules MODULE...: adds modules and those that they need, named in the order in which they load.
guest_modules() {
	depmod -b "$deps/package" "$version"
	local number=10 module
	for module in $(for m in "$@"; do modprobe -d "$deps/package" -S "$version" --show-depends "$m"; done | awk '/^insmod/ && !seen[$2]++ {print $2}'); do
		cp "$module" "$root/modules/$number.ko"
		number=$((number + 1))
	done
}

# guest_init: makes standard input, behind what every guest begins with, the first program.
guest_init() {
	cat - >"$root/init.body"
	cat - "$root/init.body" >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in /modules/*.ko; do insmod $module; done
ip link set lo up
INIT
	rm "$root/init.body"
	chmod +x "$root/init"
}

# guest_pack FILE: writes the file system.
guest_pack() {
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$1"
}
